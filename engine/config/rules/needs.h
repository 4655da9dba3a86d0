// Keys that have an effect only together with others. One list: check_needs refuses some of them in a config where they
// have no effect, and `plan` and `train` list the others.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "engine/config/keys/options.h"
#include "engine/config/rules/sizes.h"

namespace shardline {

// Reports the keys that are refused if they have no effect. `gives`: whether the file gives the key ("section.key") a
// value other than its default.
void check_needs(const Config& config, const std::function<bool(const std::string& key)>& gives,
                 const Complaint& complain);

// The shorthands ("section.key") that check_needs accepts in `from` and refuses in `to`, if the file gives them. A
// Config has only the values that they mean, so it does not show whether the file gives them.
std::vector<std::string> shorthands_refused_after(const Config& from, const Config& to);

// "training.adam_beta1 has no effect with optim \"sgd\"": a line for each other key whose value is not its default and
// that has no effect in a run of this config. on_gpus: whether the ranks use GPUs. Every "auto" must have been chosen.
std::vector<std::string> keys_without_effect(const Config& config, bool on_gpus);

// Why this key ("section.key") has no effect in the config, and what to change: "no effect without fp16; set fp16 to
// true, or leave it out". Empty if it has an effect.
std::vector<std::string> reasons_without_effect(const std::string& key, const Config& config);

}  // namespace shardline
