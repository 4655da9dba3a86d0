#include "engine/data/cache/make_once.h"

#include "core/comm/timeouts.h"
#include "core/error.h"
#include "engine/data/cache/file_lock.h"
#include "engine/data/cache/partial_file.h"

namespace shardline {

void make_once(const MakeOnce& options) {
  std::error_code error;
  const auto folder = options.path.parent_path();
  std::filesystem::create_directories(folder, error);
  if (error) throw RunError(cat(folder.string(), ": cannot be created: ", error.message()));
  if (options.is_good()) return;
  // The default ends before the ranks that wait for this one give up, so that this error is the one that is reported.
  const auto limit = options.limit.count() > 0 ? options.limit : timeouts().collective.time * 3 / 4;
  const std::filesystem::path lock_file = options.path.string() + ".lock";
  const FileLock lock(lock_file, limit, [&] {
    const int64_t bytes = PartialFile::bytes_in_progress(options.path);
    const int64_t progress = bytes + std::filesystem::last_write_time(lock_file, error).time_since_epoch().count();
    if (options.waiting) options.waiting(bytes, progress);
    return progress;
  });
  if (!options.is_good()) options.make(lock_file);
}

}  // namespace shardline
