#include "engine/model_source.h"

#include <filesystem>
#include <map>

#include "core/error.h"
#include "core/parameter_init.h"
#include "engine/config/optimizer_rules.h"
#include "engine/config/tensor_rules.h"
#include "engine/data/byte_tokenizer.h"
#include "models/families.h"
#include "models/hf_writer.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// The prefix that files of a headless base model lack.
constexpr const char* kBasePrefix = "transformer.";

// What stands beside the weights: the tokenizer's files, and the rest of the directory that the model came from.
std::vector<std::string> companions(const ModelSource& source, const std::string& tokenizer) {
  std::map<std::string, std::string> files;  // by file name; the tokenizer's win
  if (source.directory)
    for (const auto& file : source.directory->companion_files()) files[fs::path(file).filename()] = file;
  if (fs::is_directory(tokenizer))
    for (const auto& file : companion_files(tokenizer)) files[fs::path(file).filename()] = file;
  else if (fs::is_regular_file(tokenizer))
    files["tokenizer.json"] = tokenizer;
  std::vector<std::string> paths;
  for (const auto& [name, path] : files) paths.push_back(path);
  return paths;
}

}  // namespace

ModelSource open_model(const Config& config) {
  const ModelOptions& options = config.model;
  ModelSource source;
  if (!options.path.empty()) source.directory = std::make_shared<HfDirectory>(options.path, kBasePrefix);
  const HfModel model =
      read_hf_model(source.directory ? source.directory->config() : nlohmann::json::object(), options.config);
  if (!model.mistakes.empty())
    throw ConfigError(mistakes_text(model.mistakes, options.path + "/config.json: ", "/model/config"));
  source.hf_config = model.config;
  source.spec = make_spec(config, source.hf_config);
  if (source.directory && options.init == "pretrained") source.directory->check_names(source.spec);
  return source;
}

ModelSpec make_spec(const Config& config, const nlohmann::json& hf_config, const SplitChoices& splits) {
  ModelSpec spec = model_spec(hf_config, "the model", is_sequence_parallel(config.smp), splits);
  exclude_from_decay(config.training.no_decay_patterns, spec);
  return spec;
}

std::string fill_parameters(const ModelOptions& options, const ModelSource& source, uint64_t seed,
                            StageParameters& parameters) {
  const auto& at = parameters.groups().at;
  const int t_degree = parameters.groups().mesh.t();
  std::map<std::string, int> numbers;
  for (const auto& layer : source.spec.layers)
    for (const auto& param : layer.params) numbers.emplace(layer.full_name(param), static_cast<int>(numbers.size()));
  parameters.fill_values([&](Parameter& parameter) {
    if (options.init == "pretrained")
      source.directory->read(*parameter.spec, parameter.name, at.t, t_degree, parameter.value);
    else
      init_parameter(parameter, numbers.at(parameter.name), seed, at.t, t_degree);
  });
  return options.init == "pretrained" ? source.directory->digest() : "random";
}

void save_model(const std::string& directory, const ModelSource& source, StageParameters& parameters,
                const std::string& tokenizer) {
  const RankGroups& groups = parameters.groups();
  HfWriter writer(directory, source.spec, parameters.trained_type());
  if (groups.rank == 0) writer.create();
  groups.world->barrier({.what = "model files made"});
  parameters.visit_values([&](const Parameter& parameter) {
    if (parameters.writes(parameter))
      writer.write(*parameter.spec, parameter.name, groups.at.t, groups.mesh.t(), parameter.value);
  });
  writer.flush();
  groups.world->barrier({.what = "model files written"});
  if (groups.rank != 0) return;
  writer.finish(source.hf_config, companions(source, tokenizer));
  if (tokenizer == "bytes") write_byte_tokenizer(directory);
}

}  // namespace shardline
