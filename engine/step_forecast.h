// How long a plan's training step takes by a profile of its layers and links.
#pragma once
#include <memory>

#include "engine/plan.h"
#include "partitioner/step_estimate.h"

namespace shardline {

// The plan in the planner's words, for its profile; layers that are recomputed differently stay out of Layout.
Layout layout_of(const Plan& plan);
Job job_of(const Config& config, const Plan& plan, const ModelSpec& spec, std::shared_ptr<const Profile> profile);

// The instruction lists that the plan runs, with the chunks that it has, at measured prices. The profile must be usable
// for the plan (engine/profile_use.h).
StepEstimate forecast_step(const Config& config, const Plan& plan, const ModelSpec& spec,
                           std::shared_ptr<const Profile> profile);

}  // namespace shardline
