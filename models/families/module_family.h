// Models of a program's own torch::nn modules, which configs name by their model_type as they name a family.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "models/families/families.h"
#include "models/graph/module_layers.h"

namespace shardline {

// All keys of a config whose family is a program's own. Those about labels are num_labels alone, however the config
// states them.
nlohmann::json own_keys(HfConfigReader& read, const HeadChoice& head);

// Makes the model of a config: model.config, over the config.json of model.path if there is one, with num_labels for
// models that predict something about each sample. Called often, on every
// rank; must make the same model each time. What it throws is reported as a mistake in the config.
using MakeModules = std::function<ModuleModel(const nlohmann::json& config)>;

// A family with one head: causal_lm, or sequence_classification for models that predict something about each sample.
// The key "loss" of a config replaces ModuleModel::loss. head_class: `architectures` of a saved config.json.
Family family_of_modules(const std::string& head_class, HeadChoice::Kind head, MakeModules make);

}  // namespace shardline
