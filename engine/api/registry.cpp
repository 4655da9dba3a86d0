#include "engine/api/registry.h"

#include <utility>

#include "core/error.h"
#include "engine/config/keys/choices.h"
#include "engine/serve/handlers.h"
#include "engine/tasks/task.h"
#include "engine/train/step_callbacks.h"
#include "models/families/families.h"
#include "models/families/module_family.h"
#include "models/graph/row_losses.h"
#include "models/traced/traced_family.h"
#include "optim/update/added_optimizer.h"

namespace shardline {
namespace {

// Throws if the name is one of a key's built-in words.
template <HasWords Choice>
void refuse_known_word(const std::string& name, const char* what) {
  for (const auto& word : kWords<Choice>)
    if (name == word.text)
      throw ConfigError(cat("shardline already has ", what, " \"", name, "\"; give the new one another name"));
}

void add_new_family(const std::string& name, const Family& family) {
  if (has_family(name))
    throw ConfigError(cat("there is already a model \"", name, "\"; give the new one another name"));
  add_family(name, family);
}

HeadChoice::Kind head_of_modules(const std::string& model, const std::string& task) {
  if (task == kCausalLm) return HeadChoice::Kind::causal_lm;
  if (task == kSequenceClassification) return HeadChoice::Kind::sequence_classification;
  throw ConfigError(cat("the model \"", model, "\" is for the task \"", task, "\"; modules are trained for \"",
                        kCausalLm, "\" or \"", kSequenceClassification, "\""));
}

}  // namespace

// The actions that register the additions; removed when they have run.
struct Registry::Additions {
  std::vector<std::function<void()>> waiting;
};

Registry::Registry() : additions_(std::make_shared<Additions>()) {}

Registry& Registry::model(const std::string& name, std::function<ModuleModel(const nlohmann::json& config)> make,
                          const std::string& task) {
  additions_->waiting.push_back(
      [=] { add_new_family(name, family_of_modules(name, head_of_modules(name, task), make)); });
  return *this;
}

Registry& Registry::traced_model(const std::string& name, std::function<TracedModel(const nlohmann::json& config)> make,
                                 const std::string& task) {
  additions_->waiting.push_back([=] {
    const auto kind = kind_of_task(task);
    if (!kind)
      throw ConfigError(cat("the model \"", name, "\" is for the task \"", task, "\", which shardline does not know"));
    add_new_family(name, family_of_traced(name, *kind, make));
  });
  return *this;
}

Registry& Registry::family(const std::string& name, const Family& family) {
  additions_->waiting.push_back([=] { add_new_family(name, family); });
  return *this;
}

Registry& Registry::task(const std::string& name, const TaskTraits& traits, TaskFactory make) {
  additions_->waiting.push_back([=] { add_task(name, traits, make); });
  return *this;
}

Registry& Registry::metric(const std::string& task, const std::string& name,
                           std::function<double(const Predicted&)> compute) {
  additions_->waiting.push_back([=] { add_metric(task, name, compute); });
  return *this;
}

Registry& Registry::loss(const std::string& name, RowLoss of_rows) {
  additions_->waiting.push_back([=] { add_loss(name, of_rows); });
  return *this;
}

Registry& Registry::optimizer(const std::string& name, const ElementRule& rule) {
  additions_->waiting.push_back([=] {
    refuse_known_word<Optim>(name, "an optimizer");
    add_optimizer(name, rule);
  });
  return *this;
}

Registry& Registry::schedule(const std::string& name, RateFormula share) {
  additions_->waiting.push_back([=] {
    refuse_known_word<RateSchedule>(name, "a learning-rate schedule");
    add_rate_schedule(name, share);
  });
  return *this;
}

Registry& Registry::after_step(StepCallback callback) {
  additions_->waiting.push_back(
      [=] { add_step_callback([callback](const StepMetrics& metrics) { callback(report_of(metrics)); }); });
  return *this;
}

Registry& Registry::model_fn(std::function<void(const std::string& directory, ModelFacts& facts)> prepare) {
  additions_->waiting.push_back([=] { add_handlers({.model_fn = prepare}); });
  return *this;
}

Registry& Registry::input_fn(std::function<Invocation(const std::string& body, const std::string& content_type)> read) {
  additions_->waiting.push_back([=] { add_handlers({.input_fn = read}); });
  return *this;
}

Registry& Registry::predict_fn(
    std::function<nlohmann::json(const Invocation& request, const ServedModel& model)> predict) {
  additions_->waiting.push_back([=] { add_handlers({.predict_fn = predict}); });
  return *this;
}

Registry& Registry::output_fn(
    std::function<AnswerBody(const nlohmann::json& prediction, const std::string& accept)> write) {
  additions_->waiting.push_back([=] { add_handlers({.output_fn = write}); });
  return *this;
}

Registry& Registry::transform_fn(std::function<AnswerBody(const ServedModel& model, const std::string& body,
                                                          const std::string& content_type, const std::string& accept)>
                                     answer) {
  additions_->waiting.push_back([=] { add_handlers({.transform_fn = answer}); });
  return *this;
}

void use(const Registry& registry) {
  for (const auto& add : std::exchange(registry.additions_->waiting, {})) add();
}

StepReport report_of(const StepMetrics& metrics) {
  return {.step = metrics.step,
          .loss = metrics.loss,
          .grad_norm = metrics.grad_norm,
          .learning_rate = metrics.learning_rate,
          .step_seconds = metrics.step_seconds,
          .tokens = metrics.tokens};
}

}  // namespace shardline
