// `shardline import`: a config made from files that describe a job for SageMaker, DeepSpeed, accelerate or Hugging
// Face's example scripts.
#pragma once
#include <string>
#include <vector>

#include "engine/import/keys/draft.h"

namespace shardline {

struct ImportedFiles {
  std::string config;    // JSON
  std::string table;     // what became of every key
  std::string mistakes;  // refused keys, or else what is wrong in the config; empty: it is valid
};

// Reads the files, which describe one job together, and those that they name, relative to the first one. Throws
// ConfigError if a file cannot be read as a description of a job.
ImportedFiles import_files(const std::vector<std::string>& paths, const ImportOptions& options);

}  // namespace shardline
