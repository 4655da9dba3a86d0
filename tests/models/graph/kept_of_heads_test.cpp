// A dry run counts what the layers of encoders and small heads keep on real tensors, byte by byte.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/comm/local_communicator.h"
#include "core/memory/kept_storage.h"
#include "core/model/backward.h"
#include "core/model/layer.h"
#include "models/families/families.h"
#include "models/graph/dry_run.h"

#include "tests/catch.h"

namespace shardline::kept_of_heads_test {
namespace {

using nlohmann::json;
using Kind = HeadChoice::Kind;

constexpr int64_t kSamples = 5, kLength = 8, kTokens = kSamples * kLength, kLabels = 3, kHidden = 24;

// A microbatch for any head; the first of each sample's rows, and as many rows of words as a plan allows for, have
// labels.
Microbatch batch_of(const HeadChoice& head) {
  Microbatch batch =
      causal_microbatch(at::randint(67, {kSamples, kLength}, at::kLong), {}, at::arange(kSamples, at::kLong));
  batch.types = at::zeros({kTokens}, at::kLong);
  if (head.kind == Kind::masked_lm) {
    batch.labels = at::full({kTokens}, kNoLabel, at::kLong);
    const int64_t most = std::ceil(most_labelled_share(head, kTokens, kSamples) * kTokens);
    CHECK(most == 20);  // the mean is 6
    batch.labels.narrow(0, 3, most).fill_(5);
  } else if (head.kind == Kind::token_classification || head.kind == Kind::causal_lm) {
    batch.labels = at::ones({kTokens}, at::kLong);
  } else if (head.kind == Kind::question_answering) {
    batch.targets = at::ones({kSamples, 2}, at::kLong);
  } else if (head.problem == HeadChoice::Problem::single_label) {
    batch.targets = at::ones({kSamples}, at::kLong);
  } else {
    batch.targets = at::ones({kSamples, kLabels});
  }
  return batch;
}

// The bytes that a layer keeps for a training step, as the executor counts them.
int64_t kept(const LayerSpec& layer, const std::vector<BorderTensor>& input, const Microbatch& batch) {
  std::vector<Parameter> parameters;
  for (const auto& param : layer.params)
    parameters.push_back({param.name, &param, at::randn(param.shape), at::zeros(param.shape)});
  const auto alone = make_local_world();
  LayerBuild build{.spec = &layer, .tp = alone.get()};
  for (auto& parameter : parameters) build.params.push_back(&parameter);
  const auto built = layer.build(build);
  Border border;
  if (!input.empty()) border = {at::randn({kTokens, kHidden}).requires_grad_(true)};
  MicrobatchContext context{.batch = &batch, .seed = 1, .loss_scale = 0.1};
  const Border output = built->forward(border, context);
  auto tensors = saved_in_graph({torch::autograd::impl::gradient_edge(output.at(0))});
  tensors.insert(tensors.end(), border.begin(), border.end());
  return bytes_of(storages_of(tensors));
}

}  // namespace

TEST_CASE("a dry run counts what encoders and small heads keep") {
  using Problem = HeadChoice::Problem;
  const std::vector<HeadChoice> heads = {
      {.kind = Kind::causal_lm},
      {.kind = Kind::masked_lm},
      {.kind = Kind::sequence_classification, .labels = kLabels, .problem = Problem::single_label},
      {.kind = Kind::sequence_classification, .labels = kLabels, .problem = Problem::multi_label},
      {.kind = Kind::sequence_classification, .labels = kLabels, .problem = Problem::regression},
      {.kind = Kind::token_classification, .labels = kLabels},
      {.kind = Kind::question_answering}};
  for (const char* family : {"bert", "roberta", "distilbert", "gpt2"})
    for (const HeadChoice& head : heads) {
      const bool decodes = std::string(family) == "gpt2";
      if (decodes && head.kind == Kind::masked_lm) continue;
      json config = {{"model_type", family}, {"vocab_size", 67}};
      if (head.kind == Kind::causal_lm && !decodes) {
        if (std::string(family) == "distilbert") continue;
        config["is_decoder"] = true;
      }
      const std::string size = decodes ? "n_embd" : std::string(family) == "distilbert" ? "dim" : "hidden_size";
      config[size] = kHidden;
      config[decodes ? "n_head" : std::string(family) == "distilbert" ? "n_heads" : "num_attention_heads"] = 3;
      const Microbatch batch = batch_of(head);
      const ModelSpec spec = model_spec(config, family, false, {}, nullptr, head);
      for (const size_t i : {size_t{0}, size_t{1}, spec.layers.size() - 1}) {
        const LayerSpec& layer = spec.layers[i];
        INFO(family << ", " << task_name(head.kind) << ", " << layer.name);
        const auto input = i > 0 ? spec.layers[i - 1].output : std::vector<BorderTensor>();
        CHECK(kept(layer, input, batch) ==
              layer.kept({.tokens = kTokens, .rows = kTokens, .length = kLength}).activations);
      }
    }
}

TEST_CASE("the cost of a small head is that of its rows") {
  json config = {{"model_type", "bert"}, {"hidden_size", 64}, {"num_attention_heads", 2}, {"vocab_size", 1000}};
  const auto flops = [&](const HeadChoice& head) {
    config["is_decoder"] = head.kind == Kind::causal_lm;
    return model_spec(config, "bert", false, {}, nullptr, head).layers.back().flops_per_token;
  };
  const double classes = 2 * (64 * 64 + 64 * 3), words = 2 * (64 * 64 + 64 * 1000);
  CHECK(flops({.kind = Kind::sequence_classification, .labels = 3}) == Approx(classes / 128));  // 128 tokens
  CHECK(flops({.kind = Kind::token_classification, .labels = 3}) == Approx(2 * 64 * 3));
  CHECK(flops({.kind = Kind::masked_lm}) == Approx(words * 20 / 128));  // 15 % of 128 rows
  CHECK(flops({.kind = Kind::masked_lm, .labelled_share = 1}) == Approx(words));
  CHECK(flops({.kind = Kind::causal_lm}) == Approx(words));
}

}  // namespace shardline::kept_of_heads_test
