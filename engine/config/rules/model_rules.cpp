#include "engine/config/rules/model_rules.h"

#include "core/error.h"
#include "core/files/json_text.h"
#include "core/files/regular_file.h"

namespace shardline {

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
  nlohmann::json file;
  try {
    file = json_in_text(read_regular_file(directory + "/config.json"));
  } catch (const DataError&) {  // opening the model reports it
    return kCausalLm;
  }
  const auto classes = file.is_object() ? file.value("architectures", nlohmann::json()) : nlohmann::json();
  if (!classes.is_array() || classes.empty() || !classes[0].is_string()) return kCausalLm;
  const auto kind = kind_of_class(classes[0].get<std::string>());
  return kind ? task_name(*kind) : kCausalLm;
}

std::optional<HfModel> described_model(const ModelOptions& options, const HeadChoice& head) {
  if (options.path.empty() && options.config.empty()) return {};
  nlohmann::json file = nlohmann::json::object();
  if (!options.path.empty()) {
    try {
      file = json_in_text(read_regular_file(options.path + "/config.json"));
    } catch (const DataError&) {  // opening the model reports it
      return {};
    }
    if (!file.is_object()) return {};
  }
  return read_hf_model(file, options.config, head);
}

}  // namespace shardline
