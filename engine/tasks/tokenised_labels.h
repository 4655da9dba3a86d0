// The labels of tokenised rows.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/source/tokenised_row.h"

namespace shardline {

// The column with a row's label or labels: `column`, which data.label_column names. If a tokenised row or a row of
// tensors does not have it, "labels" or else "label", as in transformers' data sets.
std::string label_column_of(const DataRow& row, const std::string& column);

// The elements of the row's column "labels" that belong to its tokens, each the id of a word or kNoLabel. Throws
// DataError for anything else.
std::vector<int32_t> word_labels(const DataRow& row, const TokenisedRow& tokens);

}  // namespace shardline
