#include "engine/model_source.h"

#include <fstream>
#include <sstream>

#include "core/error.h"
#include "core/parameter_init.h"
#include "models/families.h"

namespace shardline {
namespace {

nlohmann::json read_hf_config(const std::string& directory) {
  const std::string path = directory + "/config.json";
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) throw DataError(cat("/model/path: cannot read ", path, "; name a Hugging Face model directory"));
  try {
    return nlohmann::json::parse(text.str());
  } catch (const nlohmann::json::parse_error& error) {
    throw DataError(cat(path, " is not JSON: ", error.what()));
  }
}

}  // namespace

ModelSource open_model(const ModelOptions& options, bool sequence_parallel) {
  ModelSource source;
  std::string where = "/model/config";
  source.hf_config = nlohmann::json::object();
  if (!options.path.empty()) {
    source.hf_config = read_hf_config(options.path);
    where = options.path + "/config.json";
  }
  source.hf_config.update(options.config);
  source.spec = model_spec(source.hf_config, where, sequence_parallel);
  return source;
}

std::string fill_parameters(const ModelOptions& options, const ModelSource& source, uint64_t seed,
                            StageParameters& parameters) {
  const auto& groups = parameters.groups();
  std::map<std::string, int> numbers;
  for (const auto& layer : source.spec.layers)
    for (const auto& param : layer.params) numbers.emplace(layer.full_name(param), static_cast<int>(numbers.size()));
  for (auto* parameter : parameters.stored())
    init_parameter(*parameter, numbers.at(parameter->name), seed, groups.at.t, groups.mesh.t());
  return "random";
}

void save_model(const std::string&, const ModelSource&, StageParameters&, const std::string&) {}

}  // namespace shardline
