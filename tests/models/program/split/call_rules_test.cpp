// Blocks whose products are divided although there are unusual calls between them.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>

#include "models/program/trace/traced_archive.h"
#include "tests/models/program/split/split_runs.h"

#include "tests/catch.h"

namespace shardline::call_rules_test {
namespace {

using at::Tensor;
using split_runs::SplitRuns;

constexpr int64_t kWords = 31, kHeads = 3, kHeadDim = 4, kHidden = kHeads * kHeadDim, kNear = 4;

struct Block;
// Gets x [batch, length, hidden] and returns what is added to it.
using Forward = std::function<Tensor(Block& block, const Tensor& x)>;

struct Block : torch::nn::Module {
  explicit Block(Forward of) : run(std::move(of)) {}
  Tensor weight(const std::string& name, at::IntArrayRef sizes) {
    if (const auto* known = named_parameters(false).find(name)) return *known;
    return register_parameter(name, at::randn(sizes) * 0.3);
  }
  Forward run;
};

struct Net : torch::nn::Module {
  explicit Net(const Forward& forward) : words(kWords, kHidden) {
    register_module("words", words);
    register_module("blocks", blocks);
    for (int i = 0; i < 2; ++i) {
      blocks->push_back(std::make_shared<Block>(forward));
      forward(*blocks[i]->as<Block>(), at::zeros({1, 2, kHidden}));  // makes its parameters
    }
  }
  std::vector<Tensor> loss_and_logits(const Tensor& ids, const Tensor& labels) {
    Tensor x = words(ids);
    for (const auto& block : *blocks) x = x + block->as<Block>()->run(*block->as<Block>(), x);
    const Tensor logits = at::linear(at::layer_norm(x, {kHidden}), words->weight);
    const auto rows = logits.narrow(1, 0, logits.size(1) - 1).reshape({-1, kWords});
    return {at::cross_entropy_loss(rows, labels.narrow(1, 1, logits.size(1) - 1).reshape({-1})), logits};
  }
  torch::nn::Embedding words;
  torch::nn::ModuleList blocks;
};

SplitRuns runs_of(const Forward& forward) {
  const TracedModel model{.vocab_size = kWords,
                          .arguments = {"input_ids", "labels"},
                          .results = {"loss", "logits"},
                          .make =
                              [forward] {
                                const auto net = std::make_shared<Net>(forward);
                                return TracedModule{net, [net](const std::vector<Tensor>& arguments) {
                                                      return net->loss_and_logits(arguments[0], arguments[1]);
                                                    }};
                              },
                          .name = "words"};
  const auto ids = (at::arange(15, at::kLong) * 7 % kWords).view({3, 5});
  return SplitRuns(cut_program(traced_archive(model, {}, 3, 16)), causal_microbatch(ids, ids, at::arange(3)));
}

Tensor heads(const Tensor& x) {
  return x.view({x.size(0), x.size(1), kHeads, kHeadDim}).transpose(1, 2);
}
Tensor merged(const Tensor& x) {
  return x.transpose(1, 2).reshape({x.size(0), x.size(2), kHidden});
}

// Scores of the distances between queries and keys, as in DeBERTa: one table of keys for all samples.
Tensor relative_attention(Block& block, const Tensor& x) {
  const int64_t batch = x.size(0), length = x.size(1);
  const auto query = heads(at::linear(x, block.weight("q", {kHidden, kHidden}))).reshape({-1, length, kHeadDim});
  const auto table = at::linear(block.weight("table", {2 * kNear + 1, kHidden}), block.weight("k", {kHidden, kHidden}));
  const auto keys = table.view({-1, kHeads, kHeadDim}).permute({1, 2, 0}).repeat({batch, 1, 1});
  const auto places = at::arange(length, at::kLong);
  const auto distances = (places.unsqueeze(1) - places.unsqueeze(0)).clamp(-kNear, kNear) + kNear;
  const auto scores = at::gather(at::matmul(query, keys), 2, distances.expand({batch * kHeads, length, length}));
  const auto values = heads(at::linear(x, block.weight("v", {kHidden, kHidden}))).reshape({-1, length, kHeadDim});
  const auto mixed = at::matmul(at::softmax(scores, -1), values).view({batch, kHeads, length, kHeadDim});
  return at::linear(merged(mixed), block.weight("o", {kHidden, kHidden}));
}

// Products that are written as sums over letters, and scores that are shifted, as in XLNet.
Tensor attention_of_letters(Block& block, const Tensor& x) {
  const int64_t batch = x.size(0), length = x.size(1);
  const auto made = [&](const char* name) {
    return at::einsum("bld,dhe->blhe", {x, block.weight(name, {kHidden, kHeads, kHeadDim})});
  };
  auto scores = at::einsum("bihe,bjhe->bhij", {made("q"), made("k")});
  scores = at::cat({at::zeros({batch, kHeads, length, 1}), scores}, 3).view({batch, kHeads, length + 1, length});
  scores = scores.slice(2, 1).reshape({batch, kHeads, length, length});
  const auto mixed = at::einsum("bhij,bjhe->bihe", {at::softmax(scores, -1), made("v")});
  return at::einsum("blhe,dhe->bld", {mixed, block.weight("o", {kHidden, kHeads, kHeadDim})});
}

Tensor over_tokens(Block& block, const Tensor& x, int64_t channels, int64_t groups, int64_t width) {
  const auto kernel = block.weight("kernel", {channels, x.size(2) / groups, width});
  return at::conv1d(x.transpose(1, 2), kernel, block.weight("bias", {channels}), 1, width / 2, 1, groups)
      .transpose(1, 2);
}

// A convolution of each channel between two products, as in SegFormer.
Tensor convolved_columns(Block& block, const Tensor& x) {
  const auto y = over_tokens(block, at::linear(x, block.weight("up", {7, kHidden})), 14, 7, 3);
  return at::linear(at::gelu(y), block.weight("down", {kHidden, 14}));
}

// Rows that are multiplied with integers, as masks may be.
Tensor times_integers(Block& block, const Tensor& x) {
  const auto y =
      at::linear(at::gelu(at::linear(x, block.weight("up", {7, kHidden}))), block.weight("down", {kHidden, 7}));
  return y * (at::arange(x.size(1), at::kLong) % 3).unsqueeze(1);
}

// Gates interleaved with the columns that they multiply; only some of the results are used.
Tensor part_of_gated(Block& block, const Tensor& x) {
  const auto made = at::linear(x, block.weight("gated", {16, kHidden}));
  const auto y = made.slice(2, 0, 16, 2) * at::sigmoid(made.slice(2, 1, 16, 2));
  return at::linear(y.slice(2, 0, 5), block.weight("down", {kHidden, 5}));
}

// Dropout on a part of a product's columns, and on single columns of what is whole.
Tensor dropped_parts(Block& block, const Tensor& x) {
  const auto parts = at::linear(x, block.weight("gated", {14, kHidden})).chunk(2, 2);
  const auto y = at::dropout(parts[0], 0.3, /*train=*/true) * at::sigmoid(parts[1]);
  return at::linear(y, block.weight("down", {kHidden, 7})) + at::dropout(x.slice(2, 0, 1), 0.3, /*train=*/true);
}

// Groups of channels of hidden states, which are whole.
Tensor convolved_groups(Block& block, const Tensor& x) {
  return over_tokens(block, x, kHidden, 3, 31);
}

// Products whose columns cannot be divided because heads of a hidden state meet theirs, with biases from one tensor.
Tensor gated_attention(Block& block, const Tensor& x) {
  const auto biases =
      at::cat({block.weight("q_bias", {kHidden}), block.weight("k_bias", {kHidden}), block.weight("v_bias", {kHidden})})
          .chunk(3);
  const auto made = [&](const char* name, int i) {
    return heads(at::linear(x, block.weight(name, {kHidden, kHidden}), biases[i]));
  };
  const auto gates = heads(x).mean(-1, /*keepdim=*/true);
  const auto scores = at::matmul(made("q", 0), made("k", 1).transpose(2, 3)) * gates;
  return at::linear(merged(at::matmul(at::softmax(scores, -1), made("v", 2))), block.weight("o", {kHidden, kHidden}));
}

}  // namespace

TEST_CASE("heads and channels are divided through repeats, lookups, letters, shifts and grouped convolutions",
          "[split]") {
  struct Case {
    const char* what;
    Forward forward;
    std::vector<const char*> divided;
  };
  const Case one =
      GENERATE(Case{"relative", relative_attention, {"q", "k", "v", "o"}},
               Case{"letters", attention_of_letters, {"q", "k", "v", "o"}},
               Case{"columns", convolved_columns, {"up", "kernel", "bias", "down"}},
               Case{"integers", times_integers, {"up", "down"}}, Case{"groups", convolved_groups, {"kernel", "bias"}},
               Case{"gated", part_of_gated, {"gated", "down"}}, Case{"dropped", dropped_parts, {"gated", "down"}});
  const int ranks = GENERATE(2, 3);
  CAPTURE(one.what, ranks);
  const SplitRuns runs = runs_of(one.forward);
  for (const bool divides_rows : {false, true}) {
    const auto split = runs.splitter.split(ranks, {}, divides_rows);
    for (const char* name : one.divided) CHECK(split->parameters.contains(std::string("blocks.0.") + name));
    CHECK(split->share == Approx(1));
    CHECK(runs.distance(split) < 1e-12);
  }
}

TEST_CASE("gathered columns are not divided again elsewhere", "[split]") {
  const SplitRuns runs = runs_of(gated_attention);
  for (const bool divides_rows : {false, true}) CHECK(runs.distance(runs.splitter.split(2, {}, divides_rows)) < 1e-12);
}

}  // namespace shardline::call_rules_test
