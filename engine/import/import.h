// Makes a config from the description of a job for another program: every key of the job is mapped, changes nothing
// here for a stated reason, or is refused.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/import/job_files.h"
#include "engine/import/keys/draft.h"

namespace shardline {

// A key of a job, and what became of it.
struct ImportedKey {
  std::string name;  // such as "hyperparameters.learning_rate"
  nlohmann::json value;
  Outcome outcome;
};

struct Import {
  std::vector<std::string> kinds;  // one for each file
  std::vector<ImportedKey> keys;   // each key of the files once
  std::vector<Draft::Addition> additions;
  nlohmann::json config;

  std::vector<const ImportedKey*> refused() const;
};

// Reads the text of a file that a job names. Throws ConfigError if there is none.
using ReadFile = std::function<std::string(const std::string& path)>;

// Throws ConfigError if a file cannot be read as a description of a job.
Import import_job(const std::vector<JobFile>& files, const ImportOptions& options, const ReadFile& read_file);

// One line for each key of the job, then one for each key that was added to the config.
std::string import_table(const Import& import);
// "error: KEY: why, and what to do" for each refused key.
std::string refusals_text(const Import& import);

// The tables of docs/sagemaker.md.
std::string import_reference_markdown();

}  // namespace shardline
