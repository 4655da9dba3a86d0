// The folder output_dir/flight: a file of each process (core/flight), and what they do not know, in JSON.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "engine/observe/doctor/diagnosis.h"

namespace shardline {

std::filesystem::path flight_folder(const std::filesystem::path& output_dir);

// Where the ranks of a job are. Hosts may have folders of their own, so the first rank of each writes them.
struct JobPlaces {
  std::vector<std::string> hosts;  // by rank
  std::vector<int> stages;         // by rank
};
void write_job_places(const std::filesystem::path& folder, int rank, const JobPlaces& places);

// What the launcher knows of the end, in the file killed.json.
void write_killed(const std::filesystem::path& folder, const JobRecords::Killed& killed);

// All that is there. Throws RunError if there is no such folder or it has no records, DataError for a damaged file.
// runs: the job may still be running.
JobRecords read_job_records(const std::filesystem::path& folder, bool runs);

}  // namespace shardline
