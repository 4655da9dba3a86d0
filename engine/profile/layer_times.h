// Measures each distinct layer of a model on the real device, at the real shapes.
#pragma once
#include <functional>

#include "engine/plan/plan.h"
#include "engine/run/model_source.h"
#include "engine/run/ranks.h"
#include "partitioner/layout/profile.h"

namespace shardline {

// The first layer of each kind.
ModelSpec distinct_layers(const ModelSpec& spec);

// Adds `layers` and the times per element to the profile. Collective over the world: all tensor-parallel groups measure
// at the same time, as in training; the result is the mean over all ranks. progress(done, total) is called between
// measurements.
void measure_layers(const Config& config, const Plan& plan, const ModelSource& model, const RankContext& context,
                    Profile& profile, const std::function<void(int64_t, int64_t)>& progress);

}  // namespace shardline
