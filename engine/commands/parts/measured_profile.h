// Times measured by the ranks of a job, and stages that follow from them.
#pragma once
#include <memory>
#include <string>

#include "engine/commands/parts/job_parts.h"
#include "partitioner/layout/profile.h"

namespace shardline {

// Measures layers, links and the device. Collective over the world.
Profile measure_profile(const Config& config, const JobParts& parts, const RankContext& context);

// Reads the profile in `file` if it fits the job. The first rank decides, and prints the reason if it does not fit; the
// other ranks receive an empty profile. Null if the file does not exist or does not fit. Collective over the world.
std::shared_ptr<const Profile> measured_earlier(const Config& config, const JobParts& parts, const RankContext& context,
                                                const std::string& file);

// Whether training measures the layers before it places them. It does so for programs, whose times cannot be derived
// from a formula, if the planner places the layers and the config names neither a profile nor other machines.
bool measures_before_training(const Config& config, const Plan& plan, const ModelSource& model);

// Places the layers by measured times: those in output_dir/profile.json, or new ones, which the first rank writes
// there. Prints how long this took. The output directory must exist and be locked. Collective over the world.
void place_by_measured_times(const Config& config, JobParts& parts, const RankContext& context);

}  // namespace shardline
