#include "engine/config/rules/model_rules.h"

#include <fstream>
#include <iterator>

#include "core/files/json_text.h"

namespace shardline {

std::optional<HfModel> described_model(const ModelOptions& options) {
  if (options.path.empty() && options.config.empty()) return {};
  nlohmann::json file = nlohmann::json::object();
  if (!options.path.empty()) {
    std::ifstream stream(options.path + "/config.json", std::ios::binary);
    file = json_in_text({std::istreambuf_iterator<char>(stream), {}});
    if (!file.is_object()) return {};
  }
  return read_hf_model(file, options.config);
}

}  // namespace shardline
