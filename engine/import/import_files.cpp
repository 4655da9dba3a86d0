#include "engine/import/import_files.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/files/regular_file.h"
#include "engine/config/config.h"
#include "engine/import/import.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

std::string text_of_file(const std::string& path) {
  try {
    return read_regular_file(path);
  } catch (const DataError& error) {
    throw ConfigError(error.what());
  }
}

constexpr const char* kOnlyHow =
    "the job: has no script whose arguments name the model, the data and output_dir; also pass a file with the command "
    "line of the script: shardline import COMMAND_FILE FILE";

// A file of DeepSpeed or accelerate, which says how a script is run.
bool describes_only_how(const JobFile& file) {
  return &file.keys == &deepspeed_keys() || &file.keys == &accelerate_keys();
}

// Files that a job names are in the folder of its own file.
ReadFile files_beside(const std::string& path) {
  return [folder = fs::path(path).parent_path()](const std::string& name) {
    return text_of_file((folder / name).string());
  };
}

}  // namespace

ImportedFiles import_files(const std::vector<std::string>& paths, const ImportOptions& options) {
  std::vector<JobFile> files;
  for (const auto& path : paths)
    for (auto& file : read_job(text_of_file(path), path)) files.push_back(std::move(file));
  const Import import = import_job(files, options, files_beside(paths.front()));
  ImportedFiles text{.config = import.config.dump(2) + '\n', .table = import_table(import)};
  if (!import.refused().empty()) {
    text.mistakes = refusals_text(import);
    return text;
  }
  try {
    parse_config(text.config, "the config");
  } catch (const ConfigError& error) {
    text.mistakes = error.what();
    if (std::ranges::all_of(files, describes_only_how)) text.mistakes += cat("\n", kOnlyHow);
  }
  return text;
}

}  // namespace shardline
