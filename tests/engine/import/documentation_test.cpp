#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/import/import.h"

#include "tests/catch.h"

namespace shardline::documentation_test {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

// SHARDLINE_WRITE_DOCS=1 writes the tables into the file instead.
TEST_CASE("docs/sagemaker.md has the tables of all keys") {
  const auto path = std::filesystem::path(SHARDLINE_SOURCE_DIR) / "docs/sagemaker.md";
  const std::string document = read(path), begin = "<!-- keys -->\n", end = "<!-- end -->\n";
  const size_t first = document.find(begin), last = document.find(end);
  REQUIRE(first < last);
  REQUIRE(last != std::string::npos);
  const std::string current =
      document.substr(0, first + begin.size()) + import_reference_markdown() + document.substr(last);
  if (std::getenv("SHARDLINE_WRITE_DOCS")) std::ofstream(path, std::ios::binary) << current;
  INFO("run import_tests with SHARDLINE_WRITE_DOCS=1 to write " << path);
  CHECK((read(path) == current));
}

}  // namespace shardline::documentation_test
