// Partition files: the plan.json of an earlier run, from which the layers of each stage's chunks are read.
#pragma once
#include <string>
#include <vector>

#include "core/model/model_spec.h"
#include "pipeline/schedule/schedule.h"

namespace shardline {

// Returns the chunk of each layer. The k-th list of a stage is its k-th chunk. Throws ConfigError unless the file has
// the schedule's stages and chunks and names every layer of the model once; it does not check their order.
std::vector<int> read_partition_file(const std::string& path, const ModelSpec& spec, const Schedule& schedule);

}  // namespace shardline
