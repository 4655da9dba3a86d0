#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/commands/job.h"
#include "engine/observe/doctor/diagnosis_text.h"
#include "engine/observe/doctor/job_records.h"
#include "engine/run/output_lock.h"

namespace shardline {
namespace {

constexpr int kEveryRank = 1 << 20;

// The lock of its first rank says so, as far as the file system has locks.
bool is_running(const std::string& output_dir) {
  try {
    check_not_in_use(output_dir, "/output_dir");
    return false;
  } catch (const ConfigError&) {
    return true;
  }
}

}  // namespace

std::string doctor_text(const std::string& output_dir, bool json) {
  const auto folder = flight_folder(output_dir);
  if (!std::filesystem::is_directory(folder))
    throw ConfigError(cat(folder.string(), " is not a folder; give the output_dir of a training run"));
  const Diagnosis diagnosis = diagnose(read_job_records(folder, is_running(output_dir)));
  if (json) return diagnosis_json(diagnosis).dump(2) + '\n';
  return cat(situations_text(diagnosis, kEveryRank), verdict(diagnosis), '\n');
}

}  // namespace shardline
