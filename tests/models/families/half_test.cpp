// Compares the families' layers with half-precision parameters, on one rank and split, with themselves in float64 on
// the same numbers: they may differ by a few roundings, whatever the layout.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <memory>
#include <mutex>

#include "models/families/gpt2.h"
#include "models/families/gptj.h"
#include "tests/tensor_parallel/ranks.h"

#include "tests/catch.h"

namespace shardline::half_test {
namespace {

struct Layout {
  int ranks = 1;
  bool sequence_parallel = false;
};

struct Precision {
  at::ScalarType type = at::kDouble;
  bool fp32_residuals = false;  // the border behind the embedding is fp32; the layers follow it
};

struct Outcome {
  double loss = 0;
  std::vector<at::Tensor> gradients;  // of all logical parameters, whole, in the model's order
  bool types_hold = true;
};

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
  if (family == "gpt2") return gpt2_spec(small_config<Gpt2Config>(), sequence_parallel);
  auto config = small_config<GptjConfig>();
  config.rotary_dim = 8;
  return gptj_spec(config, sequence_parallel);
}

// Whole values of all parameters, of numbers that the type has.
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

bool is_residual_type(const at::Tensor& t, const Precision& precision) {
  return t.scalar_type() == (precision.fp32_residuals ? at::kFloat : precision.type);
}

// One microbatch forward and backward, layer by layer as the executor does it.
Outcome train(const ModelSpec& spec, const std::vector<at::Tensor>& values, const Microbatch& batch, const Layout& on,
              const Precision& precision) {
  Outcome outcome;
  for (const auto& value : values) outcome.gradients.push_back(at::zeros(value.sizes(), at::kDouble));
  std::mutex mutex;
  run_ranks(on.ranks, [&](CommunicatorPtr world) {
    std::vector<std::vector<Parameter>> parameters;
    std::vector<std::unique_ptr<Layer>> layers;
    size_t next = 0;
    for (const auto& layer : spec.layers) {
      auto& mine = parameters.emplace_back();
      for (const auto& param : layer.params) {
        mine.push_back(parameter_of(param, values[next++], world->rank(), on.ranks));
        mine.back().value = mine.back().value.to(precision.type);
        mine.back().grad =
            at::zeros(mine.back().value.sizes(), precision.type == at::kDouble ? at::kDouble : at::kFloat);
      }
    }
    for (size_t i = 0; i < spec.layers.size(); ++i) {
      LayerBuild build{.spec = &spec.layers[i],
                       .params = {},
                       .tp = world.get(),
                       .sequence_parallel = on.sequence_parallel,
                       .index = static_cast<int64_t>(i)};
      for (auto& param : parameters[i]) build.params.push_back(&param);
      layers.push_back(spec.layers[i].build(build));
    }

    MicrobatchContext context{.batch = &batch, .seed = 9, .step = 3, .loss_scale = 0.01};
    bool types_hold = true;
    std::vector<at::Tensor> inputs, outputs;
    for (size_t i = 0; i < layers.size(); ++i) {
      Border input;
      if (i > 0) {
        inputs.push_back(outputs.back().detach());
        if (precision.fp32_residuals) inputs.back() = inputs.back().to(at::kFloat);
        inputs.back().requires_grad_(true);
        input = {inputs.back()};
      }
      outputs.push_back(layers[i]->forward(input, context)[0]);
      const bool last = i + 1 == layers.size();
      if (i > 0 && !last) types_hold &= is_residual_type(outputs.back(), precision);
      if (last && precision.type != at::kDouble) types_hold &= outputs.back().scalar_type() == at::kFloat;
    }
    torch::autograd::backward({outputs.back()});
    for (size_t i = layers.size() - 1; i-- > 0;) {
      types_hold &= is_residual_type(inputs[i].grad(), precision);
      torch::autograd::backward({outputs[i]}, {inputs[i].grad().to(outputs[i].scalar_type())});
    }

    std::scoped_lock lock(mutex);
    outcome.loss = context.loss.sum;
    outcome.types_hold &= types_hold;
    next = 0;
    for (size_t i = 0; i < layers.size(); ++i)
      for (size_t p = 0; p < parameters[i].size(); ++p, ++next) {
        const ParamSpec& param = spec.layers[i].params[p];
        auto part = part_of(param, outcome.gradients[next], world->rank(), on.ranks);
        if (param.partial_over_t)
          part.add_(parameters[i][p].grad);
        else
          part.copy_(parameters[i][p].grad);
      }
  });
  return outcome;
}

// The largest distance of a parameter's gradient, relative to its length or to a hundredth of the longest one's (that
// of an attention key's bias is zero).
double worst_gradient(const Outcome& got, const Outcome& exact) {
  double longest = 0, worst = 0;
  for (const auto& gradient : exact.gradients) longest = std::max(longest, gradient.norm().item<double>());
  for (size_t i = 0; i < exact.gradients.size(); ++i) {
    const double length = exact.gradients[i].norm().item<double>();
    const double apart = (got.gradients[i] - exact.gradients[i]).norm().item<double>();
    worst = std::max(worst, apart / std::max(length, 0.01 * longest));
    if (std::isnan(apart)) return INFINITY;
  }
  return worst;
}

}  // namespace

TEST_CASE("a model in half precision is itself in float64 but for roundings, on every layout, with dropout") {
  const std::string family = GENERATE(as<std::string>{}, "gpt2", "gptj");
  CAPTURE(family);
  at::manual_seed(3);
  const Microbatch batch = random_batch();
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const double step = type == at::kBFloat16 ? std::ldexp(1, -8) : std::ldexp(1, -11);
    for (const Layout& on : {Layout{1, false}, {2, false}, {2, true}, {3, true}}) {
      const ModelSpec spec = small_model(family, on.sequence_parallel);
      const auto values = values_of(spec, type);
      const Outcome exact = train(spec, values, batch, on, {});
      for (const bool fp32_residuals : {false, true}) {
        CAPTURE(type, on.ranks, on.sequence_parallel, fp32_residuals);
        const Outcome got = train(spec, values, batch, on, {type, fp32_residuals});
        CHECK(got.types_hold);
        CHECK(got.loss == Approx(exact.loss).epsilon(step));
        CHECK(worst_gradient(got, exact) <= 12 * step);
      }
    }
  }
}

}  // namespace shardline::half_test
