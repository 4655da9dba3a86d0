// The folder output_dir/flight: a file of each process (core/flight), and JSON files with facts about the whole job.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "engine/observe/doctor/diagnosis.h"

namespace shardline {

std::filesystem::path flight_folder(const std::filesystem::path& output_dir);

// The hosts and stages of a job's ranks. The first rank of each host writes them, because hosts may have folders of
// their own.
struct JobPlaces {
  std::vector<std::string> hosts;  // by rank
  std::vector<int> stages;         // by rank
};
void write_job_places(const std::filesystem::path& folder, int rank, const JobPlaces& places);

// Writes the launcher's knowledge of the end to killed.json.
void write_killed(const std::filesystem::path& folder, const JobRecords::Killed& killed);

// Reads all records in the folder. Throws RunError if there is no such folder or it has no records, DataError for a
// damaged file. runs: the job may still be running.
JobRecords read_job_records(const std::filesystem::path& folder, bool runs);

}  // namespace shardline
