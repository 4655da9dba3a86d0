#include "engine/tasks/tokenised_inputs.h"

#include "core/error.h"
#include "engine/config/rules/model_rules.h"

namespace shardline {

TokenisedInputs::TokenisedInputs(const Config& config) {
  const auto model = described_model(config.model, head_choice(config));
  const std::string type = model ? model->config.value("model_type", "") : "";
  adds_words_ = type.starts_with("gpt");
  shifts_positions_ = type == "roberta" || type == "xlm-roberta";
}

std::optional<TokenisedRow> TokenisedInputs::read(const DataRow& row, int64_t most) const {
  if (shifts_positions_ && is_tokenised(row) && has_column(row, "position_ids"))
    throw DataError(cat(row.where,
                        ": 'position_ids' must be left out, because this model counts positions itself, from the one "
                        "after its pad_token_id"));
  auto tokens = tokenised_row(row, most);
  if (tokens && adds_words_) refuse_types(row, *tokens);
  return tokens;
}

}  // namespace shardline
