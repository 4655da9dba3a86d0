// Compares the families' layers with half-precision parameters, on one rank and split, with themselves in float64 on
// the same numbers: they may differ by a few roundings, whatever the layout.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <limits>

#include "models/families/bert.h"
#include "models/families/gpt2.h"
#include "models/families/gptj.h"
#include "tests/models/families/run_layers.h"

#include "tests/catch.h"

namespace shardline::half_test {
namespace {

constexpr int64_t kWords = 61;

template <class Config>
Config small_config() {
  Config config;
  config.vocab_size = kWords;
  config.n_positions = 40;
  config.n_embd = 60;
  config.n_layer = 2;
  config.n_head = 5;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.1;
  config.tie_word_embeddings = false;
  return config;
}

ModelSpec small_model(const std::string& family, bool sequence_parallel) {
  if (family == "gpt2") return gpt2_spec(small_config<Gpt2Config>(), {}, sequence_parallel);
  if (family == "bert")
    return bert_spec(small_config<BertConfig>(), {.kind = HeadChoice::Kind::masked_lm}, sequence_parallel);
  auto config = small_config<GptjConfig>();
  config.rotary_dim = 8;
  return gptj_spec(config, {}, sequence_parallel);
}

// Whole values of all parameters, chosen so that the type represents them exactly.
std::vector<at::Tensor> values_of(const ModelSpec& spec, at::ScalarType type) {
  std::vector<at::Tensor> values;
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params) {
      const bool norm = param.init.kind == Init::Kind::ones;
      values.push_back((at::randn(param.shape) * 0.2 + (norm ? 1 : 0)).to(type).to(at::kDouble));
    }
  return values;
}

Microbatch random_batch() {
  const at::Tensor ids = at::randint(kWords, {3, 33}, at::kLong);
  return causal_microbatch(ids, ids, at::tensor({4, 0, 7}, at::kLong));
}

// The largest distance of a parameter's gradient, relative to its length or to a hundredth of the longest one's (that
// of an attention key's bias is zero).
double worst_gradient(const LayersOutcome& got, const LayersOutcome& exact) {
  double longest = 0, worst = 0;
  for (const auto& gradient : exact.gradients) longest = std::max(longest, gradient.norm().item<double>());
  for (size_t i = 0; i < exact.gradients.size(); ++i) {
    const double length = exact.gradients[i].norm().item<double>();
    const double apart = (got.gradients[i] - exact.gradients[i]).norm().item<double>();
    worst = std::max(worst, apart / std::max(length, 0.01 * longest));
    if (std::isnan(apart)) return std::numeric_limits<double>::infinity();
  }
  return worst;
}

}  // namespace

TEST_CASE("a model in half precision differs from float64 only by rounding, on every layout, with dropout") {
  const std::string family = GENERATE(as<std::string>{}, "gpt2", "gptj", "bert");
  CAPTURE(family);
  at::manual_seed(3);
  const Microbatch batch = random_batch();
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const double step = type == at::kBFloat16 ? std::ldexp(1, -8) : std::ldexp(1, -11);
    for (LayersRun on : {LayersRun{1, false}, {2, false}, {2, true}, {3, true}}) {
      const ModelSpec spec = small_model(family, on.sequence_parallel);
      const auto values = values_of(spec, type);
      const MicrobatchContext context{.batch = &batch, .seed = 9, .step = 3, .loss_scale = 0.01};
      const LayersOutcome exact = run_layers(spec, values, context, on);
      on.type = type;
      for (const bool fp32_residuals : {false, true}) {
        CAPTURE(type, on.ranks, on.sequence_parallel, fp32_residuals);
        on.fp32_residuals = fp32_residuals;
        const LayersOutcome got = run_layers(spec, values, context, on);
        CHECK(got.types_hold);
        CHECK(got.loss.sum == Approx(exact.loss.sum).epsilon(step));
        CHECK(worst_gradient(got, exact) <= 12 * step);
      }
    }
  }
}

}  // namespace shardline::half_test
