// output_dir/flight: the last operations of every rank and what it waited for, readable even if its process was killed.
#pragma once
#include <functional>

#include "core/model/mesh.h"
#include "engine/config/keys/options.h"
#include "engine/run/ranks.h"

namespace shardline {

// Collective. Begins the files of a new job. On every host, moves the files of the last run that began its steps to a
// separate folder. Throws RunError if the files cannot be created. Ranks that are threads share the file of rank 0.
void keep_flight_records(const Config& config, const RankContext& context, const Mesh& mesh);

// Removes the earlier records on this rank's host. Call it when the new run can no longer be refused.
void forget_earlier_flight_records(const Config& config, const RankContext& context);

// The disk space that the files of all ranks take.
double flight_file_bytes(const Config& config);

// Calls `run` and records how it ended for this rank.
void note_end_of_rank(const std::function<void()>& run);

}  // namespace shardline
