// The names of checkpoints in a directory.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace shardline {

inline constexpr const char* kUnfinishedSuffix = ".incomplete";
inline constexpr const char* kNewestFile = "newest";  // names the newest checkpoint, as SageMaker's library does

std::string checkpoint_name(int64_t step);                           // "checkpoint-500"
std::optional<int64_t> step_of_checkpoint(const std::string& name);  // and back

struct CheckpointPlace {
  int64_t step;
  std::filesystem::path path;
};
// Directories that have a checkpoint's name and a manifest, the newest first. None if the directory cannot be read.
std::vector<CheckpointPlace> checkpoints_in(const std::filesystem::path& directory);

// Removes a checkpoint in an order in which what is left is never taken for one.
void remove_checkpoint(const std::filesystem::path& path);

}  // namespace shardline
