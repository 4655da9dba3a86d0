// Whether a profile may be used: the conditions under which it was measured, compared with those of this run.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "engine/plan/plan.h"
#include "engine/run/ranks.h"
#include "partitioner/layout/profile.h"

namespace shardline {

// The value of Profile::valid_for that these ranks would measure: everything that the measured times depend on, except
// for what the profile's layers and links record themselves. A condition that is missing here must not change a
// measured time.
std::map<std::string, std::string> profile_conditions(const Config& config, const Plan& plan,
                                                      const RankContext& context);
// The conditions that follow from the config and the model alone, whatever the machine and the layout.
std::map<std::string, std::string> job_conditions(const Config& config, const ModelSpec& spec, Precision precision);

// Why the profile cannot be used for this plan: other conditions, or missing layers or links. Empty if it can.
std::string why_not_usable(const Profile& profile, const std::map<std::string, std::string>& conditions,
                           const Plan& plan, const ModelSpec& spec);

// A profile, or null and the reason why there is no usable one. find_profile reads it from the file, and throws
// DataError if the file is damaged.
struct FoundProfile {
  std::shared_ptr<const Profile> profile;
  std::string why_not;
};
FoundProfile find_profile(const std::string& path, const std::map<std::string, std::string>& conditions,
                          const Plan& plan, const ModelSpec& spec);

}  // namespace shardline
