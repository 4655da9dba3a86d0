// Traced models of a user's program, which configs select by model_type, like a family.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "models/families/families.h"
#include "models/program/trace/traced_model.h"

namespace shardline {

// Returns the model of a config, which is passed as to MakeModules (models/families/module_family.h).
using MakeTraced = std::function<TracedModel(const nlohmann::json& config)>;

// A family with one head. name: for messages, and `architectures` of a saved config.json.
Family family_of_traced(const std::string& name, HeadChoice::Kind head, MakeTraced make);

}  // namespace shardline
