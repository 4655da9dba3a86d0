// Rules of single keys that a JsonType cannot express, and rules between keys. Each rule is checked only if the
// sections that it reads were read without a mistake.
#pragma once
#include <functional>
#include <string>

#include "engine/config/keys/options.h"
#include "engine/config/rules/sizes.h"

namespace shardline {

// Reports the mistake that `read` throws as ConfigError("RULE; ADVICE"), or "RULE" without advice.
void report_mistakes(const std::function<void()>& read,
                     const std::function<void(const std::string& rule, const std::string& advice)>& report);

void check_has_data(const Config& config, const Complaint& complain);
void check_model_and_data(const Config& config, const Complaint& complain);
// Checks the keys of model.config, merged with the directory's config.json, and the sample length against the model.
void check_model_config(const Config& config, const Complaint& complain);
void check_training(const Config& config, const Complaint& complain);
void check_determinism(const Config& config, const Complaint& complain);
void check_precision(const Config& config, const Complaint& complain);
void check_evaluation(const Config& config, const Complaint& complain);
void check_layout(const Config& config, const Complaint& complain);
// Whether a degree is "auto"; if so, checks what that requires.
bool check_auto(const Config& config, const Complaint& complain);
// Checks that the number of ranks can be computed, and that a host of a run has a sensible number; comes before all
// rules that need the number.
void check_ranks_of_host(const Config& config, const Complaint& complain);
void check_processes(const Config& config, const Complaint& complain);

}  // namespace shardline
