// Models made of a user's own torch::nn modules. Configs select them by model_type, like a family.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "models/families/families.h"
#include "models/graph/module_layers.h"

namespace shardline {

// All keys of a config for a user-defined family. Keys about labels are reduced to num_labels, however the config
// states them.
nlohmann::json own_keys(HfConfigReader& read, const HeadChoice& head);

// Makes the model of a config: the keys of config.json in model.path, if any, overridden by model.config, and
// num_labels for models that predict something about each sample. Called often, on every rank; must make the same model
// each time. What it throws is reported as a mistake in the config.
using MakeModules = std::function<ModuleModel(const nlohmann::json& config)>;

// A family with one head: causal_lm, or sequence_classification for models that predict something about each sample.
// The config key "loss" replaces ModuleModel::loss. head_class: `architectures` of a saved config.json.
Family family_of_modules(const std::string& head_class, HeadChoice::Kind head, MakeModules make);

}  // namespace shardline
