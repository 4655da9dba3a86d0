// Tokenised rows as the model of a config reads them.
#pragma once
#include <optional>

#include "engine/config/keys/options.h"
#include "engine/data/source/tokenised_row.h"

namespace shardline {

class TokenisedInputs {
 public:
  explicit TokenisedInputs(const Config& config);
  // tokenised_row(row, most). Also throws DataError if the row has columns that mean something else for the model:
  // token_type_ids that are not all 0, for which GPT models of transformers add the embeddings of words, or
  // position_ids, which RoBERTa's models count from another number.
  std::optional<TokenisedRow> read(const DataRow& row, int64_t most) const;

 private:
  bool adds_words_ = false, shifts_positions_ = false;
};

}  // namespace shardline
