#include "engine/checkpoint/checkpoint_directory.h"

#include "core/error.h"
#include "engine/checkpoint/manifest.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::checkpoint_directory_test {

using Catch::Contains;
namespace fs = std::filesystem;

TEST_CASE("checkpoints are complete directories with the name of a step, the newest first") {
  const TempFolder folder;
  for (const char* name : {"checkpoint-9", "checkpoint-10", "checkpoint-07", "checkpoint--1", "checkpoint-8.superseded",
                           "checkpoint-12.incomplete", "checkpoint-99999999999999999999", "other"})
    folder.write(cat(name, "/", kManifestFile), "{}");
  folder.write("checkpoint-11/config.json", "{}");
  folder.write("checkpoint-13", "a file");
  std::vector<int64_t> steps;
  for (const auto& place : checkpoints_in(folder.path())) steps.push_back(place.step);
  CHECK(steps == std::vector<int64_t>{10, 9});
}

TEST_CASE("a directory of checkpoints that cannot be read is an error, not an empty directory") {
  const TempFolder folder;
  CHECK(checkpoints_in(folder.path()).empty());
  CHECK(checkpoints_in(folder.path() / "missing").empty());
  const fs::path loop = folder.path() / "loop";
  fs::create_symlink(loop, loop);
  CHECK_THAT(message_of<RunError>([&] { checkpoints_in(loop); }),
             Contains(loop.string()) && Contains("cannot be listed"));
  // The only checkpoint is not removed even if nobody can check whether it has a manifest.
  fs::create_symlink(loop, folder.path() / "checkpoint-5");
  CHECK(checkpoints_in(folder.path()).size() == 1);
}

// Hosts publish their parts one after the other, so after a kill no host can know which version the others have.
TEST_CASE("both versions of a part survive a run that ends while it replaces the part") {
  const TempFolder folder;
  const std::string part = "checkpoint-5.part-1-of-2", attempt = ".0123456789abcdef.incomplete";
  const auto put = [&](const std::string& name) { folder.write(cat(name, "/", kManifestFile), name); };
  const auto text = [&](const std::string& name) { return read_file(folder.path() / name / kManifestFile); };
  put(part);
  put(part + attempt);
  put("checkpoint-6.part-1-of-2" + attempt);  // not published
  folder.write("checkpoint-7.part-1-of-2/" + std::string(kManifestFile), "published");
  folder.write("checkpoint-7.part-1-of-2" + attempt + "/x", "");  // not complete
  remove_unfinished(folder.path());
  CHECK(text(part) == part);
  CHECK(text(part + ".superseded") == part + attempt);
  for (const char* step : {"6", "7"})
    CHECK_FALSE(fs::exists(folder.path() / cat("checkpoint-", step, ".part-1-of-2", attempt)));
  CHECK_FALSE(fs::exists(folder.path() / "checkpoint-7.part-1-of-2.superseded"));
}

}  // namespace shardline::checkpoint_directory_test
