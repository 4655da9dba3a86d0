#include "engine/tasks/tokenised_labels.h"

#include <utility>

#include "core/error.h"
#include "core/files/json_type.h"
#include "core/model/microbatch.h"
#include "engine/config/keys/options.h"

namespace shardline {

std::string label_column_of(const DataRow& row, const std::string& column) {
  const bool is_tensor = row.tensor_row >= 0 && column == DataOptions().label_column;
  if ((is_tokenised(row) || is_tensor) && !has_column(row, column))
    for (const char* usual : {"labels", "label"})
      if (has_column(row, usual)) return usual;
  return column;
}

std::vector<int32_t> word_labels(const DataRow& row, const TokenisedRow& tokens) {
  std::vector<int32_t> labels;
  for (const auto& label : values_of_tokens(row, tokens, "labels")) {
    const int64_t id = label.is_number_integer() ? label.get<int64_t>() : -1;
    if ((id < 0 || !std::in_range<int32_t>(id)) && id != kNoLabel)
      throw DataError(
          cat(row.where, ": 'labels' must be a list of ids, or ", kNoLabel, " for none; got ", json_shown(label)));
    labels.push_back(id);
  }
  return labels;
}

}  // namespace shardline
