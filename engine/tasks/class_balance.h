// How often each label of a model occurs in examples.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/files/json_data.h"
#include "engine/data/dataset/example_source.h"
#include "models/families/head_choice.h"

namespace shardline {

// By label: the number of examples or, for tags, of tokens that have it. Empty: the head has no classes.
std::vector<int64_t> count_labels(const Examples& data, const HeadChoice& head);

// "negative 612 (51.0 %), positive 588 (49.0 %)", with shares of all labels. If there are many labels, only the most
// and the least frequent ones.
std::string describe_labels(const std::vector<int64_t>& counts, const std::vector<std::string>& names);

// The counts as a run records them: [{"label": "negative", "count": 612}, {"label": "positive", "count": 588}]
nlohmann::json label_counts_json(const std::vector<int64_t>& counts, const std::vector<std::string>& names);
// The text for such a record. Throws DataError if `record` is something else.
std::string describe_recorded_labels(const JsonValue& record);

}  // namespace shardline
