// output_dir/flight: what every process was waiting for, readable after it was killed.
#pragma once
#include "engine/config/keys/options.h"
#include "engine/run/ranks.h"

namespace shardline {

// RunError where the file cannot be made. Ranks that are threads share the first one's file.
void keep_flight_records(const Config& config, const RankContext& context);

// The room that the files of all ranks take.
double flight_file_bytes(const Config& config);

}  // namespace shardline
