#include "core/files/json_data.h"

#include <utility>

#include "core/error.h"
#include "core/files/json_reader.h"

namespace shardline {
namespace {

nlohmann::json checked(JsonDocument document) {
  if (!document.problems.empty()) throw DataError(document.problems.front());
  if (!document.value.is_object())
    throw DataError(cat(document.file, ": must hold a JSON object; got ", document.value.type_name()));
  return std::move(document.value);
}

}  // namespace

nlohmann::json parse_data_json(std::string_view text, const std::string& file) try {
  return checked(parse_json(std::string(text), file));
} catch (const ConfigError& error) {
  throw DataError(error.what());
}

nlohmann::json read_data_json(const std::string& path) try {
  return checked(read_json_file(path));
} catch (const ConfigError& error) {
  throw DataError(error.what());
}

}  // namespace shardline
