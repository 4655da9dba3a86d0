// output_dir/flight: what every process was waiting for, readable after it was killed.
#pragma once
#include "engine/config/keys/options.h"
#include "engine/run/ranks.h"

namespace shardline {

// Throws RunError if the file cannot be created. Ranks that are threads write to the file of rank 0.
void keep_flight_records(const Config& config, const RankContext& context);

// The disk space that the files of all ranks take.
double flight_file_bytes(const Config& config);

}  // namespace shardline
