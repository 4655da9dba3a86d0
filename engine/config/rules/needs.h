// Keys that do something only beside others: one list, from which a config that gives them without is refused, and from
// which `plan` and `train` say what has no effect in a run.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "engine/config/keys/options.h"
#include "engine/config/rules/sizes.h"

namespace shardline {

// Reports the keys that are refused where they have no effect. `gives`: whether the file has the key ("section.key")
// with another value than its default.
void check_needs(const Config& config, const std::function<bool(const std::string& key)>& gives,
                 const Complaint& complain);

// "training.adam_beta1 has no effect with optim \"sgd\"": a line for each other key whose value is not its default and
// that has no effect in a run of this config. on_gpus: where the ranks are. Every "auto" was chosen.
std::vector<std::string> keys_without_effect(const Config& config, bool on_gpus);

}  // namespace shardline
