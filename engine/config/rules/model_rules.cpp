#include "engine/config/rules/model_rules.h"

#include <filesystem>

#include "core/error.h"
#include "core/files/json_text.h"
#include "core/files/regular_file.h"
#include "models/program/program_file.h"

namespace shardline {
namespace {

// The config.json of a model directory; null if it cannot be read, which is reported when the model is opened.
nlohmann::json config_in(const std::string& directory) {
  try {
    nlohmann::json file = json_in_text(read_regular_file(directory + "/config.json"));
    if (file.is_object()) return file;
  } catch (const DataError&) {
  }
  return nullptr;
}

// The head that a directory's model was trained with; unset if the "architectures" in its config.json do not name it.
std::optional<HeadChoice::Kind> head_of_directory(const nlohmann::json& file) {
  const auto classes = file.is_object() ? file.value("architectures", nlohmann::json()) : nlohmann::json();
  if (!classes.is_array() || classes.empty() || !classes[0].is_string()) return {};
  return kind_of_class(classes[0].get<std::string>());
}

}  // namespace

HeadChoice head_choice(const std::string& task) {
  return {.kind = traits_of(task).head};
}

HeadChoice head_choice(const Config& config) {
  HeadChoice head = head_choice(config.task);
  constexpr int kTokensOfLongWord = 4;
  if (head.kind == HeadChoice::Kind::masked_lm) {
    head.labelled_share = config.data.mlm_probability;
    if (config.data.whole_word_mask) head.labelled_together = kTokensOfLongWord;
  }
  return head;
}

std::string task_of_directory(const std::string& directory) {
  const auto kind = head_of_directory(config_in(directory));
  return kind ? task_name(*kind) : kCausalLm;
}

bool holds_program(const std::string& directory) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(std::filesystem::path(directory) / kProgramFile, ignored)) return false;
  const nlohmann::json file = config_in(directory);
  return !file.is_null() && !file.contains("model_type");
}

std::optional<HfModel> described_model(const ModelOptions& options, const HeadChoice& head) {
  if (options.path.empty() && options.config.empty()) return {};
  if (options.path.empty()) return read_hf_model(nlohmann::json::object(), options.config, head);
  const nlohmann::json file = config_in(options.path);
  if (file.is_null()) return {};
  return read_hf_model(file, options.config, head);
}

bool is_traced(const ModelOptions& options) {
  const auto is_so = [](const nlohmann::json& keys) {
    const auto type = keys.is_object() ? keys.value("model_type", nlohmann::json()) : nlohmann::json();
    return type.is_string() && is_traced_family(type.get<std::string>());
  };
  if (options.config.contains("model_type")) return is_so(options.config);
  return !options.path.empty() && !options.is_program() && is_so(config_in(options.path));
}

std::optional<StatedLabels> labels_of_directory(const Config& config) {
  const nlohmann::json file = config.model.path.empty() ? nlohmann::json() : config_in(config.model.path);
  if (file.is_null()) return {};
  const auto is_stated = [&](const char* key) { return file.contains(key) && !file[key].is_null(); };
  const HeadChoice head = head_choice(config);
  const bool has_head = is_stated("architectures") ? head_of_directory(file) == head.kind
                                                   : is_stated("num_labels") || is_stated("id2label");
  if (!has_head) return {};
  return StatedLabels{.number = read_hf_model(file, nlohmann::json::object(), head).head.labels,
                      .has_problem = is_stated("problem_type")};
}

}  // namespace shardline
