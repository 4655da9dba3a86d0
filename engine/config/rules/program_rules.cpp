#include "engine/config/rules/program_rules.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "engine/config/rules/model_rules.h"
#include "models/program/program_inputs.h"
#include "models/traced/program_head.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr const char *kStartId = "decoder_start_token_id", *kPadId = "pad_token_id";

// Whether samples of the task may be tensors, which have no tokens that are predicted.
bool may_have_columns(const ProgramUse& use) {
  return use.predicts == ProgramUse::Predicts::segment || use.predicts == ProgramUse::Predicts::target_row;
}

void read_inputs(const json& inputs, ProgramUse& use) {
  for (const auto& [argument, given] : inputs.items()) {
    const bool is_column = may_have_columns(use) && given.is_string() && !given.get<std::string>().empty();
    if (!is_column && (!given.is_string() || !is_given(given.get<std::string>(), {.predicts = use.predicts})))
      throw ConfigError(cat("maps the argument \"", argument, "\" to ", given.dump(),
                            ", which the data of this task does not have; the data has ",
                            given_names({.predicts = use.predicts}),
                            "; columns of tensors are for the tasks sequence-classification and seq2seq-lm"));
    use.inputs[argument] = given.get<std::string>();
  }
}

void read_loss(const json& loss, ProgramUse& use) {
  if (loss.is_null()) return;
  if (loss.is_string()) {
    use.loss_output = loss.get<std::string>();
    return;
  }
  const std::string form =
      cat("must be the name of an output, or {\"function\": ", loss_functions(), ", \"logits\": OUTPUT}");
  if (!loss.is_object()) throw ConfigError(form);
  for (const auto& [key, value] : loss.items()) {
    if ((key != "function" && key != "logits") || !value.is_string()) throw ConfigError(form);
    (key == "function" ? use.loss_function : use.loss_logits) = value.get<std::string>();
  }
  const auto kind = loss_function(use.loss_function);
  if (!kind) throw ConfigError(form);
  const bool is_of_numbers = *kind == ProgramLossTerm::Kind::squared_error || *kind == ProgramLossTerm::Kind::binary;
  if (is_of_numbers && use.predicts != ProgramUse::Predicts::segment)
    throw ConfigError(cat("has the function \"", use.loss_function,
                          "\", which compares numbers of a sample, but labels of this task are tokens or classes of "
                          "tokens; set the function to \"cross_entropy\", or task to \"sequence-classification\""));
}

std::optional<int64_t> token_id(const json& config, const char* key) {
  const auto id = config.find(key);
  if (id == config.end()) return {};
  if (!id->is_number_unsigned())
    throw ConfigError(cat("model.config.", key, " must be the id of a token; got ", id->dump()));
  return id->get<int64_t>();
}

}  // namespace

bool is_program_key(const std::string& key) {
  static constexpr std::array known = {"id2label", "label2id", "num_labels", "problem_type", kStartId, kPadId};
  return std::ranges::find(known, key) != known.end();
}

bool reads_columns(const Config& config) {
  ProgramUse use{.predicts = predicts_of(traits_of(config.task).head)};
  if (config.model.is_program())
    for (const auto& [argument, given] : config.model.inputs.items())
      if (given.is_string()) use.inputs[argument] = given.get<std::string>();
  for (const auto& column : traced_columns(config)) use.inputs[column.name] = column.name;
  return may_have_columns(use) && has_columns(use);
}

std::vector<TensorColumn> traced_columns(const Config& config) {
  if (!is_traced(config.model)) return {};
  const auto model = described_model(config.model, head_choice(config));
  return model ? model->columns : std::vector<TensorColumn>();
}

ProgramUse program_use(const Config& config, const json& keys) {
  ProgramUse use{.predicts = predicts_of(traits_of(config.task).head)};
  read_inputs(config.model.inputs, use);
  for (const auto& column : traced_columns(config)) use.inputs.try_emplace(column.name, column.name);
  read_loss(config.model.loss, use);
  if (const auto problem = keys.find("problem_type"); problem != keys.end() && problem->is_string())
    use.labels_are_numbers = *problem != "single_label_classification";
  use.start_id = token_id(keys, kStartId);
  use.pad_id = token_id(keys, kPadId);
  return use;
}

}  // namespace shardline
