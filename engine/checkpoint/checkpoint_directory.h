// The names of checkpoints in a directory. A checkpoint is a directory that is complete, or several parts of it: if
// hosts do not share the directory, each has the part that its ranks wrote.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace shardline {

inline constexpr const char* kUnfinishedSuffix = ".incomplete";
inline constexpr const char* kSharedPrefix = "shared-";  // begins the names of files that ranks look for; see stores.h
inline constexpr const char* kNewestFile = "newest";     // names the newest checkpoint, as SageMaker's library does

std::string checkpoint_name(int64_t step);                           // "checkpoint-500"
std::optional<int64_t> step_of_checkpoint(const std::string& name);  // and back

struct PartNumber {
  int number = 1, count = 1;  // number: from 1 to count
  auto operator<=>(const PartNumber&) const = default;
};
// The directory of a part of a checkpoint: "checkpoint-500.part-1-of-2".
std::string part_path(const std::string& checkpoint, const PartNumber& part);
// The inverse: the path of the checkpoint, and the part's number; unset if the directory does not have the name of a
// part.
std::optional<std::string> checkpoint_of_part(const std::string& path);
std::optional<PartNumber> part_in(const std::string& path);

struct CheckpointPlace {
  int64_t step;
  std::filesystem::path path;  // a complete checkpoint or a part
};
// Lists the checkpoints in a directory, and their parts: the newest first, and a complete checkpoint before its parts.
// An entry needs the name of a checkpoint or part, and a manifest; entries that cannot be read are listed, too. Returns
// an empty list if the directory does not exist. Throws RunError if it cannot be read.
std::vector<CheckpointPlace> checkpoints_in(const std::filesystem::path& directory);
// Lists the checkpoint at this path and its parts in the same directory, in the same order. The checkpoint may have any
// name.
std::vector<std::string> places_of(const std::string& checkpoint);

// Lists directories that have the name of a checkpoint or part but are not one, because they have no manifest: other
// programs save checkpoints under such names, too. Throws RunError if the directory cannot be read.
std::vector<std::filesystem::path> strangers_in(const std::filesystem::path& directory);
// Renames a directory with the name of a checkpoint so that it no longer has such a name: "checkpoint-500" to
// "checkpoint-500.superseded", or to "...-2" if that exists.
void set_aside(const std::filesystem::path& path);

// Renames an unfinished checkpoint or part, whose files are on the disk, to its final name. If an earlier attempt left
// one with this name, the two exchange their names, and the caller removes `unfinished` when it is no longer needed.
// Anything else with this name is set aside. Returns the reason why the new name may not be on the disk yet, or an
// empty string if it is. Even if it may not be, the checkpoint is kept, because other processes may already have
// seen it.
[[nodiscard]] std::string publish_checkpoint(const std::string& unfinished, const std::string& path);
// Undoes publish_checkpoint and removes the new checkpoint.
void take_back_checkpoint(const std::string& unfinished, const std::string& path);
// Removes a checkpoint. If this is interrupted, what is left is never mistaken for a checkpoint.
void remove_checkpoint(const std::filesystem::path& path);

// Writes the name of a checkpoint into the file `newest`; unset: removes the file. Afterwards, the change is on the
// disk, so the checkpoint that the file named before may be removed.
void name_newest(const std::string& directory, std::optional<int64_t> step);

// Removes unfinished files of earlier runs, and restores the name of a checkpoint that a killed run was about to
// replace. If there are two complete versions of a part, keeps the unpublished one as set_aside does. Call it while no
// run saves checkpoints there.
void remove_unfinished(const std::filesystem::path& directory);

// An attempt is one execution of a training run, from its start until it ends in any way. Only the attempt that claimed
// a directory last publishes checkpoints there, even if an earlier one still runs on a host that was cut off.
void claim_directory(const std::filesystem::path& directory, const std::string& attempt);
// Throws RunError if a later attempt has claimed the directory.
void require_claim(const std::filesystem::path& directory, const std::string& attempt);
inline constexpr const char* kAttemptFile = ".attempt";  // contains its name

}  // namespace shardline
