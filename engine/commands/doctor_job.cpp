#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

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
constexpr auto kRecent = 2s;  // of signs of life, which come several times a second

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

// The lock of the first rank says that the job runs, as far as this host sees it. Elsewhere signs of life arrive.
JobRecords job_in(const std::string& output_dir, const fs::path& folder) {
  if (is_locked(output_dir)) return read_job_records(folder, /*runs=*/true);
  JobRecords job = read_job_records(folder, /*runs=*/false);
  const std::chrono::nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
  if (last_beat(job) == 0 || now - std::chrono::nanoseconds(last_beat(job)) > kRecent) return job;
  std::this_thread::sleep_for(std::chrono::milliseconds(2 * kFlightBeatMilliseconds));
  return read_job_records(folder, last_beat(read_job_records(folder, false)) > last_beat(job));
}

std::string text_of(const Diagnosis& diagnosis) {
  return cat(situations_text(diagnosis, kEveryRank), verdict(diagnosis), '\n');
}

}  // namespace

std::string doctor_text(const std::string& output_dir, bool json) {
  const fs::path folder = flight_folder(output_dir), previous = previous_flight_folder(output_dir);
  const bool has_previous = fs::is_directory(previous), has_new = fs::is_directory(folder);
  if (!has_new && !has_previous)
    throw ConfigError(cat(folder.string(), " is not a folder; give the output_dir of a training run"));
  const auto of_previous = [&] { return diagnose(read_job_records(previous, /*runs=*/false)); };
  const Diagnosis last = has_new ? diagnose(job_in(output_dir, folder)) : of_previous();
  nlohmann::json all = diagnosis_json(last);
  std::string earlier;
  if (has_new && has_previous) try {
      const Diagnosis found = of_previous();
      all["earlier_run"] = diagnosis_json(found);
      earlier = text_of(found);
    } catch (const RunError& error) {  // the last run's records are more important
      all["earlier_run"] = {{"error", error.what()}};
      earlier = cat("  ", error.what(), '\n');
    }
  if (json) return all.dump(2) + '\n';
  if (earlier.empty()) return text_of(last);
  return cat("an earlier run, whose records are kept until another one begins its steps:\n", earlier,
             "the last run, which ", last.is_running ? "has not begun its steps:\n" : "ended before its first step:\n",
             text_of(last));
}

}  // namespace shardline
