#include "engine/observe/doctor/job_records.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "core/files/json_data.h"
#include "core/host_name.h"
#include "core/plain_text.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlaces = "job-";  // followed by the rank that wrote it, and .json
constexpr const char* kKilled = "killed.json";
constexpr int kMostStages = 1 << 20;

// Returns the regular files in the folder whose names begin and end like this, ordered by name.
std::vector<fs::path> files_in(const fs::path& folder, const std::string& begin, const std::string& end = "") {
  std::error_code error, ignored;
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(folder, error), last; !error && entry != last; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(begin) && name.ends_with(end) && entry->is_regular_file(ignored))
      files.push_back(entry->path());
  }
  if (error) throw RunError(cat(folder.string(), " cannot be read: ", error.message()));
  std::ranges::sort(files);
  return files;
}

// Calls `read`. If its file is damaged, records that, because other files are still useful.
template <class Read>
void read_or_note(std::vector<std::string>& damaged, const Read& read) {
  try {
    read();
  } catch (const DataError& error) {
    damaged.push_back(plain_text(error.what()));  // the message may quote the file
  }
}

// Calls `read` with the content of a JSON file, unless the file belongs to another job.
template <class Read>
void read_json_of_job(const fs::path& file, JobRecords& job, const Read& read) {
  read_or_note(job.damaged, [&] {
    const nlohmann::json json = read_data_json(file.string());
    const JsonValue all(json, file.string());
    if (all.at("job").text() == job.job)
      read(all);
    else
      ++job.left_out;
  });
}

void read_places(const JsonValue& all, JobRecords& job) {
  std::vector<std::string> hosts;
  std::vector<int> stages;
  for (const JsonValue& host : all.at("hosts").items()) hosts.push_back(plain_text(host.text()));
  for (const JsonValue& stage : all.at("stages").items()) stages.push_back(stage.integer(0, kMostStages));
  if (std::cmp_not_equal(hosts.size(), job.world_size) || stages.size() != hosts.size())
    all.fail(cat("must have a host and a stage for each of the ", job.world_size, " ranks"));
  job.hosts = std::move(hosts);
  job.stages = std::move(stages);
}

void add(const fs::path& path, const std::shared_ptr<const FlightFile>& file, JobRecords& job) {
  if (job.world_size == 0) job.world_size = file->world_size;
  if (file->world_size != job.world_size)
    throw DataError(cat(path.string(), " is from a job of ", file->world_size,
                        " ranks, but other records there are from one of ", job.world_size));
  for (const FlightFile::Rank& rank : file->ranks) job.ranks[rank.rank] = {file, rank, {}};
  for (const FlightRecord& record : file->records)
    if (const auto found = job.ranks.find(record.rank); found != job.ranks.end() && found->second.file == file)
      found->second.records.push_back(record);
}

}  // namespace

fs::path flight_folder(const fs::path& output_dir) {
  return output_dir / kFlightFolder;
}

fs::path previous_flight_folder(const fs::path& output_dir) {
  return output_dir / kPreviousFlightFolder;
}

std::set<std::string> recorded_jobs(const fs::path& folder) {
  std::set<std::string> jobs;
  std::vector<std::string> damaged;
  try {
    for (const fs::path& file : files_in(folder, kPlaces, ".json"))
      read_or_note(damaged, [&] {
        const nlohmann::json json = read_data_json(file.string());
        jobs.insert(JsonValue(json, file.string()).at("job").text());
      });
  } catch (const RunError&) {  // the folder does not exist
  }
  return jobs;
}

void write_job_places(const fs::path& folder, int rank, const JobPlaces& places) {
  const nlohmann::json json = {{"job", places.job}, {"hosts", places.hosts}, {"stages", places.stages}};
  write_file((folder / cat(kPlaces, rank, ".json")).string(), json.dump() + '\n');
}

void write_killed(const fs::path& folder, const std::string& job, const JobRecords::Killed& killed) {
  const nlohmann::json json = {{"job", job}, {"rank", killed.rank}, {"how", killed.how}};
  write_file((folder / kKilled).string(), json.dump() + '\n');
}

FlightFiles newest_flight_files(const fs::path& folder) {
  FlightFiles found;
  for (const fs::path& path : files_in(folder, "rank-"))
    read_or_note(found.damaged, [&] {
      found.files.emplace(path, std::make_shared<const FlightFile>(read_flight_file(path.string())));
    });
  if (found.files.empty() && !found.damaged.empty())
    throw DataError(cat(folder.string(), " has only damaged records: ", found.damaged.front()));
  if (found.files.empty()) throw RunError(cat(folder.string(), " has no records of ranks"));
  const auto newest = std::ranges::max_element(
      found.files, {}, [](const auto& entry) { return std::pair(entry.second->opened_ns, entry.second->job); });
  found.job = newest->second->job;
  found.left_out = std::erase_if(found.files, [&](const auto& entry) { return entry.second->job != found.job; });
  return found;
}

JobRecords read_job_records(const fs::path& folder, bool runs) {
  const FlightFiles newest = newest_flight_files(folder);
  JobRecords job{.job = newest.job, .left_out = newest.left_out, .damaged = newest.damaged};
  for (const auto& entry : newest.files) read_or_note(job.damaged, [&] { add(entry.first, entry.second, job); });
  for (const fs::path& file : files_in(folder, kPlaces, ".json"))
    read_json_of_job(file, job, [&](const JsonValue& places) { read_places(places, job); });
  for (const fs::path& file : files_in(folder, kKilled))
    read_json_of_job(file, job, [&](const JsonValue& killed) {
      job.killed = {killed.at("rank").integer(0, job.world_size - 1), plain_text(killed.at("how").text())};
    });
  if (runs) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    job.now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    job.now_host = host_name();
  }
  return job;
}

}  // namespace shardline
