#include "engine/config/rules/model_rules.h"

#include <fstream>

namespace shardline {

std::optional<HfModel> described_model(const ModelOptions& options) {
  if (options.path.empty() && options.config.empty()) return {};
  nlohmann::json file = nlohmann::json::object();
  if (!options.path.empty()) {
    std::ifstream stream(options.path + "/config.json");
    file = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
    if (!file.is_object()) return {};
  }
  return read_hf_model(file, options.config);
}

}  // namespace shardline
