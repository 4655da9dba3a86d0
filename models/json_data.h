// The JSON parts of model directories: files of others, whose mistakes are DataErrors naming file and place.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace shardline {

// DataError for what is no JSON object, for keys given twice, and for nesting deeper than any such file has.
// `file` opens the message.
nlohmann::json parse_data_json(const std::string& text, const std::string& file);
nlohmann::json read_data_json(const std::string& path);

}  // namespace shardline
