#include "engine/checkpoint/checkpoint_directory.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <random>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "engine/checkpoint/manifest.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = "checkpoint-";

// None if there is no such directory.
std::vector<fs::path> entries_of(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    entries.push_back(entry->path());
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw RunError(cat(directory.string(), ": the checkpoints there cannot be listed: ", error.message()));
  return entries;
}

}  // namespace

std::string checkpoint_name(int64_t step) {
  return cat(kPrefix, step);
}

std::optional<int64_t> step_of_checkpoint(const std::string& name) {
  if (!name.starts_with(kPrefix)) return {};
  int64_t step = 0;
  const char *begin = name.data() + kPrefix.size(), *end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(begin, end, step);
  if (error != std::errc() || rest != end || step < 0 || checkpoint_name(step) != name) return {};
  return step;
}

std::string random_digits() {
  std::random_device random;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", random(), random());
  return text;
}

std::vector<CheckpointPlace> checkpoints_in(const fs::path& directory) {
  std::vector<CheckpointPlace> places;
  for (const auto& path : entries_of(directory)) {
    const auto step = step_of_checkpoint(path.filename().string());
    std::error_code unreadable;  // what it is will show when it is read
    if (step && (fs::exists(path / kManifestFile, unreadable) || unreadable)) places.push_back({*step, path});
  }
  std::ranges::sort(places, [](const auto& a, const auto& b) { return a.step > b.step; });
  return places;
}

void remove_checkpoint(const fs::path& path) {
  const fs::path going = path.string() + kUnfinishedSuffix;
  std::error_code error;
  fs::remove_all(going, error);
  rename_file(path.string(), going.string());
  sync_directory(path.parent_path().string());
  fs::remove_all(going, error);
  if (error) throw RunError(cat(going.string(), ": cannot be removed: ", error.message()));
}

void remove_unfinished(const fs::path& directory) {
  for (const auto& path : entries_of(directory)) {
    const std::string name = path.filename().string(), whole = path.string();
    const bool is_ours = name.starts_with(kPrefix) || name.starts_with(kSharedPrefix) || name.starts_with(kNewestFile);
    if (!is_ours || !name.ends_with(kUnfinishedSuffix)) continue;
    const fs::path other = whole.substr(0, whole.rfind(kReplacedSuffix));
    if (name.ends_with(kReplacedSuffix) && !fs::exists(other))
      fs::rename(path, other);  // its run was killed before the checkpoint that replaces it was there
    else
      fs::remove_all(path);
  }
}

std::string claim_directory(const fs::path& directory) {
  const std::string attempt = random_digits();
  write_file((directory / kAttemptFile).string(), attempt + "\n");
  return attempt;
}

void require_claim(const fs::path& directory, const std::string& attempt) {
  std::ifstream file(directory / kAttemptFile);
  std::string owner;
  if (std::getline(file, owner) && owner != attempt)
    throw RunError(
        cat(directory.string(), ": a later run has taken the directory over, and only that one saves there"));
}

}  // namespace shardline
