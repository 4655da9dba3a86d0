// The folder output_dir/flight: a file of each process (core/flight), and JSON files with facts about the whole job.
// All of them name their job, because files of earlier jobs may be left there if a host has its own folder, or if a
// user has copied files from several hosts. Only the newest job's files are used.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/observe/doctor/diagnosis.h"

namespace shardline {

std::filesystem::path flight_folder(const std::filesystem::path& output_dir);
// The folder that keeps the records of the last run that began its steps, until another one begins its steps.
std::filesystem::path previous_flight_folder(const std::filesystem::path& output_dir);
inline constexpr const char *kFlightFolder = "flight", *kPreviousFlightFolder = "flight.previous";

// The hosts and stages of a job's ranks. The first rank of each host writes them, because hosts may have folders of
// their own.
struct JobPlaces {
  std::vector<std::string> hosts;  // by rank
  std::vector<int> stages;         // by rank
  std::string job = {};            // its id
};
// The ids of the jobs that files of JobPlaces in a folder describe, if the files can be read.
std::set<std::string> recorded_jobs(const std::filesystem::path& folder);
void write_job_places(const std::filesystem::path& folder, int rank, const JobPlaces& places);

// Writes the launcher's knowledge of the job's end to killed.json.
void write_killed(const std::filesystem::path& folder, const std::string& job, const JobRecords::Killed& killed);

// The files of the processes of one job.
struct FlightFiles {
  std::string job;
  std::map<std::filesystem::path, std::shared_ptr<const FlightFile>> files;
  int left_out = 0;                  // files of other jobs
  std::vector<std::string> damaged;  // for each unreadable file: why it cannot be read
};
// Returns the files of the job whose file in the folder was opened last. Throws RunError if the folder does not exist
// or has no records, DataError if all of them are damaged.
FlightFiles newest_flight_files(const std::filesystem::path& folder);

// Reads all records of the newest job in the folder that can be read. Throws as newest_flight_files. runs: the job may
// still be running.
JobRecords read_job_records(const std::filesystem::path& folder, bool runs);

}  // namespace shardline
