#include "engine/run/output_lock.h"

#include <filesystem>

#include "core/error.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::output_lock_test {

using Catch::Matchers::Contains;
namespace fs = std::filesystem;

TEST_CASE("A holder notices that another process has taken its place", "[output_lock]") {
  const TempFolder folder;
  {
    const OutputLock lock(folder.path(), "/output_dir", "out");
    // Like a file system on which locks end when a connection is lost.
    folder.write(OutputLock::kFile, "process 7 on host b, started 2026-01-01 00:00:00 UTC\nabc\n");
    CHECK_THAT(message_of<RunError>([&] { lock.require_held(); }),
               Contains("another run has taken") && Contains(folder.path().string()));
  }
  CHECK(fs::exists(folder.path() / OutputLock::kFile));  // the lock belongs to the other run
}

TEST_CASE("A lock file that somebody has removed does not end a run", "[output_lock]") {
  const TempFolder folder;
  const OutputLock lock(folder.path(), "/output_dir", "out");
  fs::remove(folder.path() / OutputLock::kFile);
  lock.require_held();
}

}  // namespace shardline::output_lock_test
