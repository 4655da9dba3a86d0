// JSON objects in files made by other programs (model directories, tokenizers, lines of data): mistakes are DataErrors.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace shardline {

// DataError for anything but a JSON object, for duplicate keys, and for nesting deeper than any such file has; it
// begins with `file` and the place.
nlohmann::json parse_data_json(std::string_view text, const std::string& file);
nlohmann::json read_data_json(const std::string& path);

}  // namespace shardline
