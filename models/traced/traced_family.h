// Models of a program's own that are traced, which configs name by their model_type as they name a family.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "models/families/families.h"
#include "models/program/trace/traced_model.h"

namespace shardline {

// The model of a config, as MakeModules (models/families/module_family.h) gets it.
using MakeTraced = std::function<TracedModel(const nlohmann::json& config)>;

// A family with one head. name: in messages, and `architectures` of a saved config.json.
Family family_of_traced(const std::string& name, HeadChoice::Kind head, MakeTraced make);

}  // namespace shardline
