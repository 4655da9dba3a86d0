// The job definitions of tests/engine/import/jobs, each with the options of its command line.
#pragma once
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "engine/import/import.h"

namespace shardline {

inline const std::filesystem::path kJobs = std::filesystem::path(SHARDLINE_SOURCE_DIR) / "tests/engine/import/jobs";

inline std::string text_of_job_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in.is_open()) throw ConfigError(cat(path.string(), ": cannot read this file"));
  return {std::istreambuf_iterator<char>(in), {}};
}

// Files in jobs/files, by name.
inline std::string text_beside_jobs(const std::string& name) {
  return text_of_job_file(kJobs / "files" / name);
}

inline ImportOptions options_of_job(const std::filesystem::path& job) {
  const auto path = kJobs / (job.stem().string() + ".options.json");
  if (!std::filesystem::exists(path)) return {};
  const auto json = nlohmann::json::parse(text_of_job_file(path));
  return {.channels = json.value("channels", std::map<std::string, std::string>{}),
          .hosts = json.value("hosts", std::vector<std::string>{}),
          .ranks = json.value("ranks", 0),
          .settings = json.value("settings", std::vector<std::string>{})};
}

inline std::vector<std::filesystem::path> job_definitions() {
  std::vector<std::filesystem::path> jobs;
  for (const auto& entry : std::filesystem::directory_iterator(kJobs))
    if (entry.is_regular_file() && !entry.path().string().ends_with(".options.json")) jobs.push_back(entry.path());
  std::sort(jobs.begin(), jobs.end());
  return jobs;
}

inline Import import_text_as(const std::string& text, const std::string& name, const ImportOptions& options = {}) {
  return import_job(read_job(text, name), options, text_beside_jobs);
}

}  // namespace shardline
