#include "models/graph/module_layers.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/rnn.h>

#include <cmath>
#include <deque>
#include <utility>

#include "core/comm/local_communicator.h"
#include "core/error.h"
#include "core/model/layer.h"
#include "tests/models/graph/user_modules.h"

#include "tests/catch.h"

namespace shardline::module_layers_test {
namespace {

using torch::nn::AnyModule;
using user::kHidden;

// A module whose forward is a function.
struct Lambda : torch::nn::Module {
  using Forward = std::function<at::Tensor(Lambda&, const at::Tensor&)>;
  explicit Lambda(Forward f) : f_(std::move(f)) { scale = register_buffer("scale", at::arange(1.0, 1.5)); }
  at::Tensor forward(const at::Tensor& x) { return f_(*this, x); }
  at::Tensor scale;  // [1]: 1
  int calls = 0;
  Forward f_;
};

// The small model with one of the user's own modules inside.
ModelSpec with_module(const std::function<AnyModule()>& make) {
  ModuleModel model = user::small_model();
  model.modules.insert(model.modules.begin() + 2, PlainModule{.name = "mine", .make = make, .ties = {}});
  return spec_of_modules(model);
}
ModelSpec with_forward(const Lambda::Forward& forward) {
  return with_module([forward] { return AnyModule(std::make_shared<Lambda>(forward)); });
}

// A module with children.
struct Nested : torch::nn::Module {
  Nested() : linear(kHidden, kHidden), fine(0.0), loose(0.5) {
    register_module("linear", linear);
    register_module("fine", fine);
    register_module("loose", loose);
  }
  at::Tensor forward(const at::Tensor& x) { return x + loose(fine(linear(x))); }
  torch::nn::Linear linear;
  torch::nn::Dropout fine, loose;
};

}  // namespace

TEST_CASE("a Sequential of modules becomes a list of layers") {
  const ModelSpec spec = spec_of_modules(user::small_model());
  std::vector<std::string> names;
  for (const auto& layer : spec.layers) names.push_back(layer.name);
  CHECK(names ==
        std::vector<std::string>{"net.0", "net.1", "net.2", "net.3", "net.4", "net.5", "net.6", "net.7", "net.8"});
  CHECK(spec.block_count() == 7);
  CHECK(spec.layers[2].params.size() == 2);
  CHECK(spec.param("net.2.weight").init.kind == Init::Kind::ones);
  CHECK(spec.param("net.2.bias").init.kind == Init::Kind::zeros);
  CHECK(!spec.param("net.2.bias").decays);
  CHECK(spec.param("net.3.weight").shape == std::vector<int64_t>{20, kHidden});
  CHECK(spec.param("net.3.weight").init.std == Approx(1 / std::sqrt(3.0 * kHidden)).epsilon(0.2));
  CHECK(spec.param("net.8.weight").tied_to == "net.0.words.weight");
  CHECK(spec.layers[3].output[0].shape == std::vector<int64_t>{BorderTensor::kRows, 20});
  CHECK(spec.layers[8].output.empty());
}

TEST_CASE("the costs of a module are found by running it once") {
  const ModelSpec spec = spec_of_modules(user::small_model());
  const int64_t tokens = 24;
  const KeptCase at{.tokens = tokens, .rows = tokens};
  const auto& up = spec.layers[3];  // linear, 12 -> 20
  CHECK(up.flops_per_token == 2 * 12 * 20);
  CHECK(up.work({.sequences = 3, .length = 8}).flops(Phase::forward) == tokens * 2 * 12 * 20);
  CHECK(up.work({.sequences = 3, .length = 8}).flops(Phase::backward_input) == tokens * 4 * 12 * 20);
  CHECK(up.kept(at).activations == tokens * 12 * 4);  // its input
  CHECK(up.passes(at).forward == tokens * 20 * 4);    // its result
  CHECK(spec.layers[4].kept(at).activations == tokens * 20 * 4);
  CHECK(spec.layers[0].flops_per_token == 0);
  CHECK(spec.layers[8].flops_per_token == 2 * user::kHidden * user::kVocabulary);
  // Three products with weights, and the two products of attention.
  CHECK(spec.layers[1].flops_per_token == 2 * (4 * 12 * 12 + 2 * 8 * 12));
  CHECK(spec.layers[1].kept(at).activations > tokens * (12 + 36 + 12) * 4);
  auto wide = at;
  wide.element_bytes = 8;
  CHECK(spec.layers[1].kept(wide).activations == 2 * spec.layers[1].kept(at).activations);
}

TEST_CASE("modules keep the initial values that they are created with, which depend on seed and position") {
  const ModuleModel model = user::small_model();
  const ModelSpec spec = spec_of_modules(model);
  const auto values = [&](const std::string& name, uint64_t seed) {
    Parameter parameter{.name = name, .spec = &spec.param(name)};
    parameter.value = at::arange(parameter.spec->numel(), at::kDouble).view(parameter.spec->shape);
    values_of_modules(model, seed)(parameter);
    return parameter.value;
  };
  const auto weight = values("net.3.weight", 3);
  CHECK(weight.equal(values("net.3.weight", 3)));
  CHECK(!weight.equal(values("net.3.weight", 4)));
  CHECK(weight.abs().max().item<double>() <= 1 / std::sqrt(12.0) + 1e-6);  // uniform
  CHECK(!values("net.1.in.weight", 3).equal(values("net.6.in.weight", 3)));
}

TEST_CASE("modules that would give other results when they are recomputed are refused by name") {
  CHECK_NOTHROW(with_forward([](Lambda& self, const at::Tensor& x) { return x * self.scale; }));
  using Catch::Contains;
  CHECK_THROWS_WITH(with_forward([](Lambda&, const at::Tensor& x) { return at::Tensor(x).relu_(); }),
                    Contains("module mine cannot be a layer: it changes its input in place"));
  CHECK_THROWS_WITH(with_forward([](Lambda&, const at::Tensor& x) { return at::Tensor(x.detach()).mul_(2) + x; }),
                    Contains("module mine ") && Contains("changes its input in place"));
  CHECK_THROWS_WITH(with_forward([](Lambda&, const at::Tensor& x) { return x + at::randn_like(x); }),
                    Contains("module mine ") && Contains("torch's random generator"));
  CHECK_THROWS_WITH(with_module([] { return AnyModule(std::make_shared<Nested>()); }),
                    Contains("module mine.loose cannot") && Contains("torch's random generator"));
  CHECK_THROWS_WITH(with_forward([](Lambda& self, const at::Tensor& x) {
                      self.scale.add_(1);
                      return x * self.scale;
                    }),
                    Contains("module mine.scale ") && Contains("a forward pass changes it"));
  CHECK_THROWS_WITH(with_forward([](Lambda& self, const at::Tensor& x) { return x * (1.0 + self.calls++); }),
                    Contains("module mine ") && Contains("different result when it runs again"));
  CHECK_THROWS_WITH(with_forward([](Lambda&, const at::Tensor& x) {
                      const auto y = x.exp();
                      const auto z = y * 2;
                      y.add_(1);
                      return z + y;
                    }),
                    Contains("module mine ") && Contains("changes a tensor in place that its gradient needs"));
}

TEST_CASE("a running mean is refused by its name, and a mean over the batch by its module's") {
  struct Norm : torch::nn::Module {
    explicit Norm(bool running) : norm(torch::nn::BatchNorm1dOptions(kHidden).track_running_stats(running)) {
      register_module("norm", norm);
    }
    at::Tensor forward(const at::Tensor& x) { return norm(x.transpose(1, 2)).transpose(1, 2); }
    torch::nn::BatchNorm1d norm;
  };
  CHECK_THROWS_WITH(with_module([] { return AnyModule(std::make_shared<Norm>(true)); }),
                    Catch::Contains("module mine.norm.running_mean ") && Catch::Contains("running statistics"));
  CHECK_THROWS_WITH(with_module([] { return AnyModule(std::make_shared<Norm>(false)); }),
                    Catch::Contains("module mine ") && Catch::Contains("depends on the other samples"));
}

TEST_CASE("a module that mixes samples in any way is refused") {
  using Forward = Lambda::Forward;
  const std::vector<std::pair<const char*, Forward>> mixing = {
      {"earlier to later", [](Lambda&, const at::Tensor& x) { return x.cumsum(0); }},
      {"later to earlier", [](Lambda&, const at::Tensor& x) { return x.flip(0).cumsum(0).flip(0); }},
      {"next neighbour, not the first",
       [](Lambda&, const at::Tensor& x) {
         return at::cat({x.narrow(0, 0, 1), x.narrow(0, 1, x.size(0) - 1) + x.narrow(0, 0, x.size(0) - 1)});
       }},
      {"the last two of a batch",
       [](Lambda&, const at::Tensor& x) {
         const int64_t n = x.size(0);
         return n < 3 ? x * 1 : at::cat({x.narrow(0, 0, n - 1), x.narrow(0, n - 1, 1) + x.narrow(0, n - 2, 1)});
       }},
      {"large batches only", [](Lambda&, const at::Tensor& x) { return x.size(0) > 4 ? x + x.mean(0, true) : x * 1; }},
      {"faintly", [](Lambda&, const at::Tensor& x) { return x + 1e-4 * x.mean(0, true); }},
      {"the number of samples", [](Lambda&, const at::Tensor& x) { return x / x.size(0); }},
      {"the place among the samples",
       [](Lambda&, const at::Tensor& x) {
         return x * at::arange(1, x.size(0) + 1).view({-1, 1, 1});
       }},
  };
  for (const auto& [how, forward] : mixing) {
    CAPTURE(how);
    CHECK_THROWS_WITH(with_forward(forward),
                      Catch::Contains("module mine cannot be a layer") && Catch::Contains("the other samples"));
  }
  struct Recurrent : torch::nn::Module {
    explicit Recurrent(bool batch_first) : lstm(torch::nn::LSTMOptions(kHidden, kHidden).batch_first(batch_first)) {
      register_module("lstm", lstm);
    }
    at::Tensor forward(const at::Tensor& x) { return std::get<0>(lstm(x)); }
    torch::nn::LSTM lstm;
  };
  CHECK_THROWS_WITH(with_module([] { return AnyModule(std::make_shared<Recurrent>(false)); }),
                    Catch::Contains("module mine ") && Catch::Contains("batch_first"));
  CHECK_NOTHROW(with_module([] { return AnyModule(std::make_shared<Recurrent>(true)); }));
}

TEST_CASE("a module need not be able to run on an empty microbatch") {
  ModuleModel model = user::small_model();
  const auto never_empty = [](Lambda&, const at::Tensor& x) {
    if (x.size(0) == 0) throw std::runtime_error("no samples");
    return x * 1;
  };
  for (size_t i = model.modules.size(); i > 0; --i)
    model.modules.insert(model.modules.begin() + static_cast<std::ptrdiff_t>(i),
                         PlainModule{.name = cat("mine.", i),
                                     .make = [=] { return AnyModule(std::make_shared<Lambda>(never_empty)); },
                                     .ties = {}});
  model.modules.pop_back();  // the head stays the last
  const ModelSpec spec = spec_of_modules(model);
  const CommunicatorPtr tp = make_local_world();
  const at::Tensor no_ids = at::empty({0, user::kPositions}, at::kLong);
  const Microbatch none = causal_microbatch(no_ids, no_ids);
  at::Tensor border;
  for (const Mode mode : {Mode::train, Mode::evaluate})
    for (const LayerSpec& layer : spec.layers) {
      CAPTURE(layer.name);
      const bool train = mode == Mode::train;
      std::deque<Parameter> parameters;
      LayerBuild build{.spec = &layer, .tp = tp.get()};
      for (const auto& param : layer.params) {
        const auto value = at::ones(param.shape);
        parameters.push_back({layer.full_name(param), &param, value, at::zeros_like(value)});
        build.params.push_back(&parameters.back());
      }
      MicrobatchContext context{.batch = &none, .mode = mode, .loss_scale = 0.5};
      at::AutoGradMode grad(train);
      const Border input = &layer == &spec.layers.front() ? Border() : Border{border.detach().requires_grad_(train)};
      const Border output = layer.build(build)->forward(input, context);
      CHECK(context.loss.weight == 0);
      if (layer.output.empty()) {
        CHECK(context.loss.sum == 0);
        REQUIRE(output.size() == (train ? 1 : 0));
        if (train) CHECK(output[0].sizes() == at::IntArrayRef{});
        if (train) CHECK(output[0].item<double>() == 0);
      } else {
        REQUIRE(output.size() == 1);
        CHECK(output[0].sizes() == at::IntArrayRef(bind_shape(layer.output[0], 0)));
        border = output[0];
      }
      if (!train) continue;
      torch::autograd::backward({output[0]}, {at::ones_like(output[0])});
      for (const auto& tensor : input) CHECK(tensor.grad().sizes() == tensor.sizes());
      for (const auto& parameter : parameters) CHECK(parameter.grad.abs().sum().item<double>() == 0);
    }
}

TEST_CASE("errors about modules that cannot be layers explain what a layer is") {
  using Catch::Contains;
  CHECK_THROWS_WITH(with_forward([](Lambda&, const at::Tensor& x) { return x.sum(1); }),
                    Contains("module mine ") && Contains("returns [batch, length, features]"));
  CHECK_THROWS_WITH(with_forward([](Lambda&, const at::Tensor& x) { return x.detach() * 2; }),
                    Contains("module mine ") && Contains("depends neither on its input nor on a parameter"));
  CHECK_THROWS_WITH(with_module([] { return AnyModule(torch::nn::Linear(5, 5)); }),
                    Contains("module mine ") && Contains("its forward failed"));
  struct Residual : torch::nn::SequentialImpl {
    at::Tensor forward(const at::Tensor& x) { return x + torch::nn::SequentialImpl::forward(x); }
  };
  CHECK_THROWS_WITH(modules_of("net", [] { return std::make_shared<Residual>(); }),
                    Contains("module net is a ") && Contains("plain torch::nn::Sequential"));
  ModuleModel headless = user::small_model();
  headless.modules.pop_back();
  CHECK_THROWS_WITH(spec_of_modules(headless), Contains("module net.7 is the last one and returns 12 features"));
  ModuleModel twice = user::small_model();
  twice.modules[3].name = "net.1";
  CHECK_THROWS_WITH(spec_of_modules(twice), Contains("two modules have the name net.1"));
  CHECK_THROWS_AS(spec_of_modules({.name = "empty"}), ConfigError);
}

}  // namespace shardline::module_layers_test
