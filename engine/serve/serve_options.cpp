#include "engine/serve/serve_options.h"

#include <charconv>
#include <set>

#include "core/error.h"
#include "engine/config/keys/task_names.h"
#include "models/families/head_choice.h"

namespace shardline {
namespace {

void read_number(const Environment& environment, const char* name, int most, int& value) {
  const char* given = environment(name);
  if (!given || !*given) return;
  const std::string text = given;
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1 || number > most)
    throw ConfigError(cat(name, ": must be an integer from 1 to ", most, "; got \"", text, '"'));
  value = number;
}

}  // namespace

ServeOptions options_of_environment(const Environment& environment) {
  ServeOptions options;
  read_number(environment, "SAGEMAKER_BIND_TO_PORT", 65535, options.port);
  read_number(environment, "SAGEMAKER_MODEL_SERVER_WORKERS", 4096, options.workers);
  read_number(environment, "SAGEMAKER_MODEL_SERVER_TIMEOUT", 86400, options.timeout);
  return options;
}

std::optional<std::string> task_of_environment(const Environment& environment) {
  const char* task = environment("HF_TASK");
  if (!task || !*task) return {};
  return served_task(task, "HF_TASK");
}

std::string served_task(const std::string& name, const std::string& source) {
  const auto on_hub = tasks_by_hub_name().find(name);
  const std::string task = on_hub == tasks_by_hub_name().end() ? name : on_hub->second;
  static const std::set<std::string> served = {kSequenceClassification, kTokenClassification, kQuestionAnswering,
                                               kMaskedLm, kCausalLm};
  if (served.contains(task)) return task;
  throw ConfigError(cat(source, ": the task \"", name,
                        "\" is not served; use text-classification, token-classification, question-answering, "
                        "fill-mask or text-generation"));
}

}  // namespace shardline
