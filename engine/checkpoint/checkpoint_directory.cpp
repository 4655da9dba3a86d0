#include "engine/checkpoint/checkpoint_directory.h"

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "engine/checkpoint/manifest.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = "checkpoint-";

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

std::vector<CheckpointPlace> checkpoints_in(const fs::path& directory) {
  std::vector<CheckpointPlace> places;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const auto step = step_of_checkpoint(entry->path().filename().string());
    std::error_code ignored;
    if (step && fs::exists(entry->path() / kManifestFile, ignored)) places.push_back({*step, entry->path()});
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

}  // namespace shardline
