#include "engine/launch/hang_report.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <ostream>
#include <thread>

#include "core/error.h"
#include "core/flight/flight_ring.h"
#include "engine/observe/doctor/diagnosis_text.h"
#include "engine/observe/doctor/job_records.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kMostLines = 16;
constexpr auto kTimeToReport = 1s;  // for another rank, before this one ends the job

std::string report(const JobRecords& job) {
  const Diagnosis diagnosis = diagnose(job);
  // Ranks report their own failures, and mpirun knows more than the records about ranks that just ended.
  if (diagnosis.cause == Cause::none || diagnosis.cause == Cause::failed || diagnosis.cause == Cause::ended) return "";
  return cat("what the ranks were doing:\n", situations_text(diagnosis, kMostLines), "error: ", verdict(diagnosis),
             '\n');
}

template <class Function>
std::string or_note(const Function& make) {
  try {
    return make();
  } catch (const std::exception& error) {
    return cat("note: the records of the ranks do not explain the failure: ", error.what(), '\n');
  }
}

void wait_for_contents(const fs::path& file) {
  std::error_code error;
  for (const auto end = Clock::now() + kTimeToReport; Clock::now() < end; std::this_thread::sleep_for(10ms))
    if (fs::file_size(file, error) > 0 || error) return;
}

// Returns the folder of this process's records; empty if it keeps them in memory.
fs::path own_folder() {
  return fs::path(flight_ring().path()).parent_path();
}

}  // namespace

std::string report_of_ended_job(const std::string& output_dir, const std::set<std::string>& before,
                                const std::optional<RankMessages::Killed>& killed) {
  const fs::path folder = flight_folder(output_dir);
  std::error_code error;
  if (!fs::is_directory(folder, error)) return "";
  return or_note([&]() -> std::string {
    JobRecords job = read_job_records(folder, /*runs=*/false);
    if (before.contains(job.job)) return "";
    if (killed) {
      job.killed = {killed->rank, killed->how};
      write_killed(folder, job.job, *job.killed);
    }
    return report(job);
  });
}

std::string report_of_threads() {
  if (own_folder().empty()) return "";
  return or_note([] { return report(read_job_records(own_folder(), /*runs=*/false)); });
}

void report_failing_rank(std::ostream& log) {
  if (own_folder().empty()) return;
  const fs::path claimed = own_folder() / cat("reported-", flight_ring().job());
  const int claim = ::open(claimed.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
  if (claim < 0) return wait_for_contents(claimed);
  log << or_note([] { return report(read_job_records(own_folder(), /*runs=*/true)); }) << std::flush;
  [[maybe_unused]] const auto written = ::write(claim, "\n", 1);
  ::close(claim);
}

}  // namespace shardline
