// The names of checkpoints in a directory.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace shardline {

inline constexpr const char* kUnfinishedSuffix = ".incomplete";
inline constexpr const char* kSharedPrefix = "shared-";  // of files that ranks look for; see shared_directory.h
inline constexpr const char* kNewestFile = "newest";     // names the newest checkpoint, as SageMaker's library does

std::string checkpoint_name(int64_t step);                           // "checkpoint-500"
std::optional<int64_t> step_of_checkpoint(const std::string& name);  // and back

// 16 hexadecimal digits, different every time.
std::string random_digits();

struct CheckpointPlace {
  int64_t step;
  std::filesystem::path path;
};
// Directories that have a checkpoint's name and a manifest, the newest first, and those of which that cannot be known.
// None if there is no such directory. Throws RunError if it cannot be read.
std::vector<CheckpointPlace> checkpoints_in(const std::filesystem::path& directory);

// Removes a checkpoint in an order in which what is left is never taken for one.
void remove_checkpoint(const std::filesystem::path& path);

// Removes what runs that ended in any way have left unfinished. Call it while no run saves checkpoints there.
void remove_unfinished(const std::filesystem::path& directory);

// An attempt of a run to train: from its start to its end in any way. The last one that has claimed a directory is the
// only one whose checkpoints appear there, also if an earlier one, on a host that was cut off, still runs.
std::string claim_directory(const std::filesystem::path& directory);  // the new attempt's name
// Throws RunError if a later attempt has claimed the directory.
void require_claim(const std::filesystem::path& directory, const std::string& attempt);
inline constexpr const char* kAttemptFile = ".attempt";  // names it

}  // namespace shardline
