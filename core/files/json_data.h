// JSON objects in files of others (model directories, tokenizers, lines of data): mistakes are DataErrors.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace shardline {

// DataError for what is no JSON object, for keys given twice, and for nesting deeper than any such file has; it begins
// with `file` and the place.
nlohmann::json parse_data_json(std::string_view text, const std::string& file);
nlohmann::json read_data_json(const std::string& path);

}  // namespace shardline
