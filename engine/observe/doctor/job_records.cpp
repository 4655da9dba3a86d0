#include "engine/observe/doctor/job_records.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "core/files/json_data.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlaces = "job-";  // the rank that wrote it, and .json
constexpr const char* kKilled = "killed.json";
constexpr int kMostStages = 1 << 20;

// Replaces what a terminal might obey.
std::string plain(std::string text) {
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

void read_places(const fs::path& file, JobRecords& job) {
  const nlohmann::json json = read_data_json(file.string());
  const JsonValue all(json, file.string());
  for (const JsonValue& host : all.at("hosts").items()) job.hosts.push_back(plain(host.text()));
  for (const JsonValue& stage : all.at("stages").items()) job.stages.push_back(stage.integer(0, kMostStages));
  if (std::cmp_not_equal(job.hosts.size(), job.world_size) || job.stages.size() != job.hosts.size())
    all.fail(cat("must have a host and a stage for each of the ", job.world_size, " ranks"));
}

void add(const fs::path& path, JobRecords& job) {
  const auto file = std::make_shared<const FlightFile>(read_flight_file(path.string()));
  if (job.world_size == 0) job.world_size = file->world_size;
  if (file->world_size != job.world_size)
    throw DataError(
        cat(path.string(), " is of a job of ", file->world_size, " ranks, other records there of ", job.world_size));
  job.opened_ns = std::max(job.opened_ns, file->opened_ns);
  for (const FlightFile::Rank& rank : file->ranks) job.ranks[rank.rank] = {file, rank, {}};
  for (const FlightRecord& record : file->records)
    if (const auto found = job.ranks.find(record.rank); found != job.ranks.end() && found->second.file == file)
      found->second.records.push_back(record);
}

}  // namespace

fs::path flight_folder(const fs::path& output_dir) {
  return output_dir / "flight";
}

void write_job_places(const fs::path& folder, int rank, const JobPlaces& places) {
  write_file((folder / cat(kPlaces, rank, ".json")).string(),
             nlohmann::json{{"hosts", places.hosts}, {"stages", places.stages}}.dump() + '\n');
}

void write_killed(const fs::path& folder, const JobRecords::Killed& killed) {
  write_file((folder / kKilled).string(), nlohmann::json{{"rank", killed.rank}, {"how", killed.how}}.dump() + '\n');
}

JobRecords read_job_records(const fs::path& folder, bool runs) {
  std::error_code error;
  std::set<fs::path> files, places;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("rank-")) files.insert(entry->path());
    if (name.starts_with(kPlaces) && name.ends_with(".json")) places.insert(entry->path());
  }
  if (error) throw RunError(cat(folder.string(), " cannot be read: ", error.message()));
  if (files.empty()) throw RunError(cat(folder.string(), " has no records of ranks"));
  JobRecords job;
  for (const fs::path& file : files) add(file, job);
  if (!places.empty()) read_places(*places.begin(), job);
  if (fs::exists(folder / kKilled, error)) {
    const nlohmann::json json = read_data_json((folder / kKilled).string());
    const JsonValue killed(json, (folder / kKilled).string());
    job.killed = {killed.at("rank").integer(0, job.world_size - 1), plain(killed.at("how").text())};
  }
  if (runs) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    job.now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  }
  return job;
}

}  // namespace shardline
