#include "core/files/regular_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::regular_file_test {

using Catch::Matchers::Contains;

TEST_CASE("Only regular files up to a maximum size are read", "[regular_file]") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / cat("regular-file-", getpid());
  std::filesystem::create_directories(folder);
  const std::string file = folder / "file", pipe = folder / "pipe", large = folder / "large", empty = folder / "empty";
  std::ofstream(file, std::ios::binary) << std::string("a\0\n", 3);
  std::ofstream{empty};
  std::ofstream{large};
  std::filesystem::resize_file(large, kLargestWhole + 1);
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(read_regular_file(file, 3) == std::string("a\0\n", 3));
  CHECK(read_regular_file(empty, 0).empty());
  CHECK_THROWS_AS(read_regular_file(file, 2), DataError);
  CHECK_THROWS_WITH(read_regular_file(file, 2), Contains(file + ": cannot be read: it has 3 bytes; at most 2"));
  CHECK_THROWS_WITH(read_regular_file(large), Contains("bytes; at most"));
  for (const std::string& other : {pipe, folder.string(), std::string("/dev/zero")})
    CHECK_THROWS_WITH(read_regular_file(other), other + ": cannot be read: it must be a regular file");
  CHECK_THROWS_WITH(read_regular_file(folder / "none"), Contains("none: cannot be read: No such file"));
  CHECK(RegularFile(file).size() == 3);
  CHECK(RegularFile(file).read(2) == std::string("a\0", 2));
  CHECK(RegularFile(file).read(9) == std::string("a\0\n", 3));
  std::filesystem::remove_all(folder);
}

}  // namespace shardline::regular_file_test
