#include "models/graph/module_layers.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <typeinfo>

#include "core/comm/communicator.h"
#include "core/error.h"
#include "core/model/layer.h"
#include "core/numbers/philox.h"
#include "models/graph/autograd_layer.h"
#include "models/graph/module_trace.h"
#include "models/graph/row_losses.h"
#include "models/graph/torch_seed.h"

namespace shardline {
namespace {

constexpr uint64_t kTraceSeed = 1234;
constexpr uint32_t kInitOp = 65534;  // no dropout uses this number
const std::string kSquaredError = "squared_error";
enum class Place { first, between, last, only };

bool gets_ids(Place place) {
  return place == Place::first || place == Place::only;
}
bool gives_logits(Place place) {
  return place == Place::last || place == Place::only;
}

// Parameters by name; a shared parameter appears once, under its first name.
std::vector<std::pair<std::string, at::Tensor>> distinct_parameters(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  std::set<const at::TensorImpl*> seen;
  for (const auto& item : module.named_parameters())
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) parameters.emplace_back(item.key(), item.value());
  return parameters;
}

// The meaning of the last module's results.
struct Ending {
  ModuleModel::Predicts predicts;
  std::string loss;
};

// The rows of a microbatch for which a model predicts something, and their labels, which may be undefined.
struct PredictedRows {
  at::Tensor outputs, labels;
};

class ModuleLayer : public Layer {
 public:
  ModuleLayer(const PlainModule& plain, Place place, const Ending& ending, const LayerBuild& build)
      : name_(plain.name),
        place_(place),
        ending_(ending),
        features_(gives_logits(place) ? 0 : build.spec->output[0].shape[1]),
        params_(build.params),
        border_(build.half.border) {
    if (build.sequence_parallel)
      throw ConfigError(cat("module ", name_, " is whole on every tensor-parallel rank and needs all rows; set ",
                            "smp_options.optimize to \"speed\", or tensor_parallel_degree to 1"));
    const TorchSeed seed(0);  // the module's own values are not used
    module_ = plain.make();
    for (const auto& [name, parameter] : distinct_parameters(*module_.ptr())) leaves_.push_back(parameter);
    SL_ASSERT(leaves_.size() == params_.size(), name_, " created a different module than before");
    for (size_t i = 0; i < leaves_.size(); ++i) {
      leaves_[i].set_data(params_[i]->value);
      leaves_[i].requires_grad_(params_[i]->grad.defined());
    }
  }

  Border forward(const Border& input, MicrobatchContext& context) override {
    const Microbatch& batch = *context.batch;
    if (batch.tokens() > 0 && batch.position_count > batch.length())
      throw RunError(cat("module ", name_, " does not cache earlier positions; generate without a cache"));
    if (!batch.is_rectangular)
      throw RunError(
          cat("module ", name_,
              " takes samples of equal length, but the samples of this batch differ in length; use data.packing ",
              "\"wrapped\", or samples of equal length"));
    if (batch.tokens() == 0) return empty(input, context.mode);
    prepare(context.mode, input);
    const auto y = module_.forward<at::Tensor>(argument(input, batch));
    if (!gives_logits(place_)) return {y.reshape({batch.tokens(), y.size(2)}).to(border_.value_or(y.scalar_type()))};
    if (context.mode == Mode::generate) return {y.select(1, batch.length() - 1).to(at::toOpMathType(y.scalar_type()))};
    const PredictedRows rows = predicted_rows(y, batch);
    const Border loss = rows.labels.defined() ? loss_of(rows, context) : Border{};
    return context.mode == Mode::evaluate && context.predicts ? Border{rows.outputs} : loss;
  }

 private:
  at::Tensor argument(const Border& input, const Microbatch& batch) const {
    if (!gets_ids(place_)) return as_computed(input[0]).view({batch.segments(), batch.length(), -1});
    if (batch.features.defined()) return as_computed(batch.features).view({batch.segments(), batch.length(), -1});
    return batch.ids.view({batch.segments(), batch.length()});
  }

  // Some modules cannot run without samples.
  Border empty(const Border& input, Mode mode) const {
    if (gives_logits(place_) && mode != Mode::train) return {};
    const at::TensorOptions like = (params_.empty() ? input.at(0) : params_[0]->value).options().requires_grad(false);
    const auto type = border_.value_or(c10::typeMetaToScalarType(like.dtype()));
    if (gives_logits(place_)) return {without_rows(input, {}, like.dtype(at::toOpMathType(type)))};
    return {without_rows(gets_ids(place_) ? Border{} : input, {0, features_}, like.dtype(type))};
  }

  void prepare(Mode mode, const Border& input) {
    if (module_.ptr()->is_training() != (mode == Mode::train)) module_.ptr()->train(mode == Mode::train);
    connect_gradients(leaves_, params_);
    if (prepared_) return;
    prepared_ = true;
    const at::Tensor& like = params_.empty() ? input.at(0) : params_[0]->value;
    for (const auto& buffer : module_.ptr()->buffers())
      buffer.set_data(buffer.to(like.device(), buffer.is_floating_point() ? like.scalar_type() : buffer.scalar_type()));
  }

  at::Tensor as_computed(const at::Tensor& border) const {
    return params_.empty() ? border : border.to(params_[0]->value.scalar_type());
  }

  PredictedRows predicted_rows(const at::Tensor& results, const Microbatch& batch) const {
    const at::Tensor outputs = results.to(at::toOpMathType(results.scalar_type()));
    if (ending_.predicts == ModuleModel::Predicts::samples) return {outputs.select(1, 0), batch.targets};
    // The last position of a sequence has nothing to predict.
    const int64_t positions = std::max<int64_t>(outputs.size(1) - 1, 0);
    PredictedRows rows{.outputs = outputs.narrow(1, 0, positions).reshape({-1, outputs.size(2)})};
    if (batch.labels.defined())
      rows.labels = batch.labels.view({outputs.size(0), -1}).narrow(1, 0, positions).reshape({-1});
    return rows;
  }

  Border loss_of(const PredictedRows& rows, MicrobatchContext& context) const {
    const auto& [outputs, labels] = rows;
    if (at::isFloatingType(labels.scalar_type())) {
      const std::string& name = ending_.loss.empty() ? kSquaredError : ending_.loss;
      return summed_loss(sum_of_rows(name, outputs, labels), at::full({}, outputs.size(0), labels.options()), context);
    }
    const at::Tensor sum = ending_.loss.empty() ? at::cross_entropy_loss(outputs, labels, {}, at::Reduction::Sum,
                                                                         kNoLabel, context.label_smoothing)
                                                : sum_of_rows(ending_.loss, outputs, labels);
    return summed_loss(sum, (labels != kNoLabel).sum(), context);
  }

  std::string name_;
  Place place_;
  Ending ending_;
  int64_t features_;  // number of features in the result; 0: logits
  std::vector<Parameter*> params_;
  std::optional<at::ScalarType> border_;
  torch::nn::AnyModule module_;
  std::vector<at::Tensor> leaves_;  // the module's parameters, in the order of params_
  bool prepared_ = false;
};

int64_t outputs_of(const ModuleModel& model) {
  return model.outputs > 0 ? model.outputs : model.vocab_size;
}

// Ids [batch, length], or normally distributed numbers [batch, length, features].
at::Tensor traced_input(const ModuleModel& model, int64_t features) {
  const int64_t batch = std::max<int64_t>(model.microbatch, 2);
  const RandomStream stream{.seed = kTraceSeed};
  if (features == 0) {
    auto ids = at::empty({batch, model.length}, at::kLong);
    for (int64_t i = 0; i < ids.numel(); ++i) ids.data_ptr<int64_t>()[i] = random_word(stream, i) % model.vocab_size;
    return ids;
  }
  auto x = at::empty({batch, model.length, features}, at::kDouble);
  random_normals(stream, 0, x.numel(), x.data_ptr<double>());
  return x.to(at::kFloat);
}

Init init_like(const at::Tensor& value) {
  const double mean_square = value.numel() > 0 ? value.detach().to(at::kDouble).square().mean().item<double>() : 0;
  if (mean_square == 0) return {Init::Kind::zeros};
  if (at::equal(value, at::ones_like(value))) return {Init::Kind::ones};
  return {Init::Kind::normal, std::sqrt(mean_square)};
}

std::vector<ParamSpec> param_specs(const PlainModule& plain, const torch::nn::Module& module) {
  std::vector<ParamSpec> specs;
  const auto parameters = distinct_parameters(module);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, value] = parameters[i];
    ParamSpec spec{.name = name, .shape = value.sizes().vec(), .trainable = value.requires_grad()};
    spec.decays = value.dim() > 1;
    spec.sources = {{.tensor = plain.name + "." + name}};
    if (const auto tie = plain.ties.find(name); tie != plain.ties.end()) spec.tied_to = tie->second;
    spec.init = init_like(value);
    specs.push_back(std::move(spec));
  }
  return specs;
}

LayerSpec spec_of_module(const ModuleModel& model, const PlainModule& plain, Place place, int64_t features) {
  TorchSeed seed(kTraceSeed);
  auto module = plain.make();
  LayerSpec layer{.name = plain.name, .is_block = place == Place::between};
  layer.params = param_specs(plain, *module.ptr());
  const auto input = traced_input(model, features);
  const PassTrace trace = trace_module(plain.name, module, input, seed);
  const int64_t made = trace.output.back();
  if (!gives_logits(place))
    layer.output = {{"hidden", {BorderTensor::kRows, made}}};
  else if (made != outputs_of(model))
    throw ConfigError(cat("module ", plain.name, " is the last one and returns ", made, " features; it must return ",
                          model.outputs > 0 ? cat("the ", model.outputs, " outputs of the model")
                                            : cat("logits over the vocabulary of ", model.vocab_size)));
  layer.code = code_of(trace);
  state_traced_costs(layer, trace, input.size(0) * input.size(1), features, gives_logits(place) ? made : 0);
  layer.build = [plain, place, ending = Ending{model.predicts, model.loss}](const LayerBuild& build) {
    return std::make_unique<ModuleLayer>(plain, place, ending, build);
  };
  return layer;
}

struct ModuleValues {
  std::string module;
  std::map<std::string, at::Tensor> values;  // by full name
};

ModuleValues values_of(const PlainModule& plain, uint64_t seed) {
  const TorchSeed seeded(seed);
  const auto module = plain.make();
  ModuleValues made{plain.name, {}};
  for (const auto& [name, value] : distinct_parameters(*module.ptr()))
    made.values.emplace(plain.name + "." + name, value);
  return made;
}

// The module with the longest name that is a prefix of the parameter's name; null if there is none.
const PlainModule* owner_of(const std::vector<PlainModule>& modules, const std::string& parameter) {
  const PlainModule* owner = nullptr;
  for (const auto& plain : modules)
    if (parameter.starts_with(plain.name + ".") && (!owner || plain.name.size() > owner->name.size())) owner = &plain;
  return owner;
}

}  // namespace

std::vector<PlainModule> modules_of(const std::string& prefix,
                                    const std::function<std::shared_ptr<torch::nn::SequentialImpl>()>& make) {
  const TorchSeed seed(0);  // the modules' values are not used
  const auto whole = make();
  if (const torch::nn::SequentialImpl& sequential = *whole; typeid(sequential) != typeid(torch::nn::SequentialImpl))
    throw ConfigError(cat("module ", prefix, " is a ", whole->name(), ", whose forward may do more than run its ",
                          "children one after the other; give a plain torch::nn::Sequential, or make it one layer"));
  std::vector<PlainModule> modules;
  std::map<const at::TensorImpl*, std::string> first_use;
  const auto children = whole->named_children();
  for (size_t i = 0; i < children.size(); ++i) {
    PlainModule plain{.name = prefix + "." + children[i].key(), .make = [make, i] { return *(make()->begin() + i); }};
    for (const auto& [name, parameter] : distinct_parameters(*children[i].value())) {
      const auto [use, is_new] = first_use.emplace(parameter.unsafeGetTensorImpl(), plain.name + "." + name);
      if (!is_new) plain.ties.emplace(name, use->second);
    }
    modules.push_back(std::move(plain));
  }
  return modules;
}

ModelSpec spec_of_modules(const ModuleModel& model) {
  if (model.modules.empty()) throw ConfigError(cat("model ", model.name, " has no modules"));
  if (!model.loss.empty()) loss_named(model.loss);
  ModelSpec spec{.family = model.name, .vocab_size = model.vocab_size, .max_positions = model.max_positions};
  std::set<std::string> names;
  int64_t features = model.features;
  for (size_t i = 0; i < model.modules.size(); ++i) {
    const bool first = i == 0, last = i + 1 == model.modules.size();
    const Place place = first && last ? Place::only : first ? Place::first : last ? Place::last : Place::between;
    if (!names.insert(model.modules[i].name).second)
      throw ConfigError(cat("two modules have the name ", model.modules[i].name));
    spec.layers.push_back(spec_of_module(model, model.modules[i], place, features));
    if (!last) features = spec.layers.back().output[0].shape[1];
  }
  return spec;
}

std::function<void(Parameter&)> values_of_modules(const ModuleModel& model, uint64_t seed) {
  return [modules = model.modules, seed, last = ModuleValues()](Parameter& parameter) mutable {
    const PlainModule* owner = owner_of(modules, parameter.name);
    if (!owner) return;
    if (last.module != owner->name)
      last = values_of(*owner, random_word({.seed = seed, .op = kInitOp}, owner - modules.data()));
    const at::NoGradGuard no_grad;
    if (const auto found = last.values.find(parameter.name); found != last.values.end())
      parameter.value.copy_(found->second);
  };
}

}  // namespace shardline
