// When a profile may be used: what it was measured with, and where it is kept.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "engine/plan/plan.h"
#include "engine/run/ranks.h"
#include "partitioner/layout/profile.h"

namespace shardline {

// Profile::valid_for of what these ranks would measure: everything that its times depend on, except for what the
// profile's layers and links say themselves. What is not here must not change a measured time.
std::map<std::string, std::string> profile_conditions(const Config& config, const Plan& plan,
                                                      const RankContext& context);
// Those of them that follow from the config and the model alone, whatever the machine and the layout.
std::map<std::string, std::string> job_conditions(const Config& config, const ModelSpec& spec, Precision precision);

// What keeps a profile from being used for this plan: conditions, layers or links that it lacks; empty: nothing.
std::string why_not_usable(const Profile& profile, const std::map<std::string, std::string>& conditions,
                           const Plan& plan, const ModelSpec& spec);

// What the file holds; null, with the reason, where there is none or it cannot be used here. A damaged file is a
// DataError.
struct FoundProfile {
  std::shared_ptr<const Profile> profile;
  std::string why_not;
};
FoundProfile find_profile(const std::string& path, const std::map<std::string, std::string>& conditions,
                          const Plan& plan, const ModelSpec& spec);

}  // namespace shardline
