#include "models/module_layers.h"

#include <ATen/ops/randn_like.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>

#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/layer.h"
#include "tests/models/user_modules.h"

#include "tests/catch.h"

namespace shardline {
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

// The small model with a module of one's own between.
ModelSpec with_module(const std::function<AnyModule()>& make) {
  ModuleModel model = user::small_model();
  model.modules.insert(model.modules.begin() + 2, PlainModule{.name = "mine", .make = make, .ties = {}});
  return spec_of_modules(model);
}
ModelSpec with_forward(const Lambda::Forward& forward) {
  return with_module([forward] { return AnyModule(std::make_shared<Lambda>(forward)); });
}

// One with children.
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

TEST_CASE("what a module computes and keeps is seen by running it once") {
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
  // Three products with weights, and the two of attention.
  CHECK(spec.layers[1].flops_per_token == 2 * (4 * 12 * 12 + 2 * 8 * 12));
  CHECK(spec.layers[1].kept(at).activations > tokens * (12 + 36 + 12) * 4);
  auto wide = at;
  wide.element_bytes = 8;
  CHECK(spec.layers[1].kept(wide).activations == 2 * spec.layers[1].kept(at).activations);
}

TEST_CASE("modules start with the values that they are made with, the same for a seed and place") {
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

TEST_CASE("modules that recomputation would run wrongly are refused by name") {
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
                    Contains("module mine.scale ") && Contains("changed by a forward pass"));
  CHECK_THROWS_WITH(with_forward([](Lambda& self, const at::Tensor& x) { return x * (1.0 + self.calls++); }),
                    Contains("module mine ") && Contains("another result when it runs again"));
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

TEST_CASE("modules that are no layers are told what a layer is") {
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
  CHECK_THROWS_WITH(spec_of_modules(headless), Contains("module net.7 is the last and makes 12 features"));
  ModuleModel twice = user::small_model();
  twice.modules[3].name = "net.1";
  CHECK_THROWS_WITH(spec_of_modules(twice), Contains("two modules have the name net.1"));
  CHECK_THROWS_AS(spec_of_modules({.name = "empty"}), ConfigError);
}

}  // namespace shardline
