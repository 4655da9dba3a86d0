#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/flight/flight_ring.h"
#include "engine/commands/job.h"
#include "engine/observe/doctor/diagnosis_text.h"
#include "engine/observe/doctor/job_records.h"
#include "engine/run/output_lock.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr int kEveryRank = 1 << 20;
// Signs of life come several times a second, but the clock of the host that wrote them may be wrong.
constexpr auto kRecent = 5min;

bool is_locked(const std::string& output_dir) {
  try {
    check_not_in_use(output_dir, "/output_dir");
    return false;
  } catch (const ConfigError&) {
    return true;
  }
}

int64_t last_beat(const JobRecords& job) {
  int64_t last = 0;
  for (const auto& [rank, records] : job.ranks) last = std::max(last, records.file->beat_ns);
  return last;
}

// Whether all ranks have recorded how they ended.
bool has_ended(const JobRecords& job) {
  return std::cmp_equal(job.ranks.size(), job.world_size) &&
         std::ranges::all_of(job.ranks, [](const auto& rank) { return rank.second.state.end != FlightEnd::none; });
}

// The first rank's lock shows that the job runs, if this host sees the lock; on other hosts, signs of life show it.
JobRecords job_in(const std::string& output_dir, const fs::path& folder) {
  if (is_locked(output_dir)) return read_job_records(folder, /*runs=*/true);
  JobRecords job = read_job_records(folder, /*runs=*/false);
  const std::chrono::nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
  if (last_beat(job) == 0 || now - std::chrono::nanoseconds(last_beat(job)) > kRecent || has_ended(job)) return job;
  std::this_thread::sleep_for(std::chrono::milliseconds(2 * kFlightBeatMilliseconds));
  return read_job_records(folder, last_beat(read_job_records(folder, false)) > last_beat(job));
}

struct Found {
  std::string text;
  nlohmann::json json;
};

Found found_in(const JobRecords& job) {
  const Diagnosis diagnosis = diagnose(job);
  return {cat(situations_text(diagnosis, kEveryRank), verdict(diagnosis), '\n'), diagnosis_json(diagnosis)};
}

// If the records of one run cannot be read, those of another one still count.
Found found_or_why_not(const std::function<JobRecords()>& read) {
  try {
    return found_in(read());
  } catch (const RunError& error) {
    return {cat(error.what(), '\n'), {{"error", error.what()}}};
  }
}

}  // namespace

std::string doctor_text(const std::string& output_dir, bool json) {
  const fs::path folder = flight_folder(output_dir), previous = previous_flight_folder(output_dir);
  const bool has_previous = fs::is_directory(previous), has_new = fs::is_directory(folder);
  if (!has_new && !has_previous)
    throw ConfigError(cat(folder.string(), " is not a folder; give the output_dir of a training run"));
  if (!has_new || !has_previous) {
    const Found only = found_in(has_new ? job_in(output_dir, folder) : read_job_records(previous, /*runs=*/false));
    return json ? only.json.dump(2) + '\n' : only.text;
  }
  const Found earlier = found_or_why_not([&] { return read_job_records(previous, /*runs=*/false); });
  Found last = found_or_why_not([&] { return job_in(output_dir, folder); });
  const bool runs = last.json.value("running", false);
  last.json["earlier_run"] = earlier.json;
  if (json) return last.json.dump(2) + '\n';
  return cat("an earlier run, whose records are kept until another one begins its steps:\n", earlier.text,
             "the last run, which ", runs ? "has not begun its steps:\n" : "ended before its first step:\n", last.text);
}

}  // namespace shardline
