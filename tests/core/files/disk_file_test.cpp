#include "core/files/disk_file.h"

#include <cerrno>
#include <filesystem>

#include "core/error.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::disk_file_test {

using Catch::Contains;
namespace fs = std::filesystem;

TEST_CASE("a directory is created together with its missing parents") {
  const TempFolder folder;
  for (const char* name : {"a/b/c", "a/b/d/", "e/.", "a/b/../f", "a"}) {
    CAPTURE(name);
    make_directories(folder.path() / name);
    CHECK(fs::is_directory(folder.path() / name));
  }
  folder.write("file", "");
  CHECK_THAT(message_of<RunError>([&] { make_directories(folder.path() / "file/g"); }), Contains("cannot be created"));
  CHECK_THROWS_AS(make_directories(folder.path() / "file"), RunError);
}

TEST_CASE("errors of the operating system state what can be done about them") {
  const TempFolder folder;
  const std::string missing = folder.path() / "missing";  // advice about room needs no file
  for (const int full : {ENOSPC, EDQUOT, EFBIG})
    CHECK_THAT(file_error(missing, "cannot be written", full).what(),
               Contains(missing + ": cannot be written: ") && Contains("bytes left; free some space there"));
  for (const int refused : {EROFS, EACCES, EPERM})
    CHECK_THAT(file_error(missing, "cannot be made", refused).what(), Contains("; make it writable or choose another"));
  CHECK_THAT(file_error(missing, "cannot be read", EIO).what(), Contains("; check the disk"));
  CHECK_THROWS_WITH(rename_file(missing, folder.path() / "other"), Contains("cannot be renamed to "));
}

TEST_CASE("a file can be synced whichever process has written it") {
  const TempFolder folder;
  sync_file(folder.write("file", "text"));
  CHECK(read_file(folder.path() / "file") == "text");
  CHECK_THROWS_AS(sync_file(folder.path() / "missing"), RunError);
}

}  // namespace shardline::disk_file_test
