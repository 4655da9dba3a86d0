// How often each label of a model occurs in examples.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/dataset/example_source.h"
#include "models/families/head_choice.h"

namespace shardline {

// By label: the examples that have it, or for tags the tokens. Empty: the head has no classes.
std::vector<int64_t> count_labels(const Examples& data, const HeadChoice& head);

// "negative 612 (51.0 %), positive 588 (49.0 %)", with shares of all labels. Of many labels, the most and the least
// frequent ones.
std::string describe_labels(const std::vector<int64_t>& counts, const std::vector<std::string>& names);

}  // namespace shardline
