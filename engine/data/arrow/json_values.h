// Values of Arrow's arrays in the form that they would have in JSON Lines.
#pragma once
#include <arrow/array.h>

#include <nlohmann/json.hpp>

#include "engine/data/arrow/features.h"

namespace shardline {

// The value at place `i` of an array that has been validated. Numbers that are not finite are null, as JSON has none;
// bytes stay bytes; dates, times and decimals are texts; a map is a list of its entries. The -1 of a ClassLabel is
// null, because it means that there is no label. Throws std::runtime_error for a type that has no such form.
nlohmann::json json_value(const arrow::Array& array, int64_t i, const Feature& feature);

}  // namespace shardline
