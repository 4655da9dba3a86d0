// Times measured by the ranks of a job, and stages that follow from them.
#pragma once
#include <memory>
#include <string>

#include "engine/commands/parts/job_parts.h"
#include "partitioner/layout/profile.h"

namespace shardline {

// Measures layers, links and the device. Collective over the world.
Profile measure_profile(const Config& config, const JobParts& parts, const RankContext& context);

// The profile in the file, if it can be used; the first rank decides, and prints the reason if not. On other ranks an
// empty profile instead. Null: there is none. Collective over the world.
std::shared_ptr<const Profile> measured_earlier(const Config& config, const JobParts& parts, const RankContext& context,
                                                const std::string& file);

// Whether training measures the layers before it places them: those of a program, which no formulas describe, if the
// planner places them and the config names neither a profile nor other machines.
bool measures_before_training(const Config& config, const Plan& plan, const ModelSource& model);

// Places the layers by what the ranks measure, or have measured earlier in output_dir/profile.json, which the first
// rank writes; it says how long this took. The output directory must exist and be locked. Collective over the world.
void place_by_measured_times(const Config& config, JobParts& parts, const RankContext& context);

}  // namespace shardline
