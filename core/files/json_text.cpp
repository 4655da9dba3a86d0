#include "core/files/json_text.h"

#include "core/error.h"
#include "core/files/json_reader.h"

namespace shardline {

nlohmann::json json_in_text(const std::string& text) try {
  return parse_json(text, "").value;
} catch (const ConfigError&) {
  return nlohmann::json(nlohmann::json::value_t::discarded);
}

}  // namespace shardline
