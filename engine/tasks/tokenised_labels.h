// The labels of tokenised rows.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/source/tokenised_row.h"

namespace shardline {

// The column with a row's label or labels: `column`, the one that data.label_column names, or in a tokenised row
// or one of tensors without it "labels" or else "label", as transformers' data sets have it.
std::string label_column_of(const DataRow& row, const std::string& column);

// For each token of a row that has "labels" its element of these, an id of a word or kNoLabel. Throws DataError for
// anything else.
std::vector<int32_t> word_labels(const DataRow& row, const TokenisedRow& tokens);

}  // namespace shardline
