// Rows that are already tokenised, with the columns that transformers' tokenizers and collators make: input_ids, and
// perhaps attention_mask, token_type_ids and position_ids.
#pragma once
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/source/row_file.h"

namespace shardline {

// The tokens of a row whose attention_mask is not 0; all of them if it has none.
struct TokenisedRow {
  std::vector<int32_t> ids;
  std::vector<uint8_t> types;   // one for each token; empty: the row has none
  std::vector<int64_t> places;  // where the tokens are in the row's lists, ascending
  std::vector<int64_t> starts;  // tokens with which further documents begin: where position_ids are 0 again, ascending
  int64_t length = 0;           // the length of these lists
};

// Whether the row has a value other than null in this column: Parquet and Arrow files contain null if a row lacks a
// column that others have.
bool has_column(const DataRow& row, const std::string& column);

// Whether the row has input_ids. Any text that it also has is not read.
bool is_tokenised(const DataRow& row);

// Nothing if the row has no input_ids. Throws DataError unless its columns are lists of one length with integers in
// range, and position_ids count 0, 1, 2, ... in each document.
std::optional<TokenisedRow> tokenised_documents(const DataRow& row);

// The same for rows of one document; throws DataError for several, and if more than `most` tokens remain.
std::optional<TokenisedRow> tokenised_row(const DataRow& row, int64_t most = std::numeric_limits<int64_t>::max());

// Whether each token has a 1 in a column of the row. Throws DataError unless this is a list of 0 and 1 with an element
// for each of input_ids.
std::vector<bool> mask_of_tokens(const DataRow& row, const TokenisedRow& tokens, const char* column);

// Whether each token is predicted: all are, except those with a 0 in TRL's columns completion_mask or assistant_masks.
// Throws DataError unless these are lists of 0 and 1 with an element for each of input_ids.
std::vector<bool> predicted_tokens(const DataRow& row, const TokenisedRow& tokens);

// Throws DataError if the row's token_type_ids are not all 0.
void refuse_types(const DataRow& row, const TokenisedRow& tokens);

// The elements of another column of the row that belong to the tokens. Throws DataError unless it is a list with an
// element for each of input_ids.
std::vector<nlohmann::json> values_of_tokens(const DataRow& row, const TokenisedRow& tokens, const std::string& column);

}  // namespace shardline
