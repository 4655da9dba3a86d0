#include "engine/run/model_source.h"

#include <map>

#include "core/error.h"
#include "core/model/parameter_init.h"
#include "engine/config/rules/optimizer_rules.h"
#include "engine/config/rules/tensor_rules.h"
#include "models/families/families.h"

namespace shardline {
namespace {

// The prefix that files of a headless base model lack.
constexpr const char* kBasePrefix = "transformer.";

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
                            StageParameters& parameters, const LongWork::Show& show) {
  const RankGroups& groups = parameters.groups();
  std::map<std::string, int> numbers;
  for (const auto& layer : source.spec.layers)
    for (const auto& param : layer.params) numbers.emplace(layer.full_name(param), numbers.size());
  int64_t done = 0, total = 0;
  for (const auto* parameter : parameters.stored()) total += parameter->value.nbytes();

  LongWork work(*groups.world, "filling parameters", show);
  work.report(0, total);
  parameters.fill_values([&](Parameter& parameter) {
    if (options.init == "pretrained")
      source.directory->read(*parameter.spec, parameter.name, groups.coordinates.t, groups.mesh.t(), parameter.value);
    else
      init_parameter(parameter, numbers.at(parameter.name), seed, groups.coordinates.t, groups.mesh.t());
    work.report(done += parameter.value.nbytes(), total);
  });
  work.finish();
  return options.init == "pretrained" ? source.directory->digest() : "random";
}

}  // namespace shardline
