// The example configs that users start from, and the reference of all keys.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/config/config.h"
#include "engine/config/rules/sizes.h"

#include "tests/catch.h"

namespace shardline::recipes_test {
namespace fs = std::filesystem;

namespace {

const fs::path kRoot = SHARDLINE_SOURCE_DIR;

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

TEST_CASE("Every recipe loads, with no key that has no effect, and survives resolving", "[recipes]") {
  int recipes = 0;
  for (const auto& entry : fs::directory_iterator(kRoot / "configs")) {
    if (entry.path().extension() != ".json") continue;
    INFO(entry.path());
    ++recipes;
    const Config config = read_config(entry.path().string());
    CHECK(config.no_effect.empty());
    CHECK(parse_config(resolved(config).dump(), "resolved") == config);
    CHECK_NOTHROW(resolve_sizes(config, configured_world_size(config)));
  }
  CHECK(recipes >= 6);
}

TEST_CASE("The quickstart has its data and its four ranks", "[recipes]") {
  const Config config = read_config((kRoot / "configs/quickstart.json").string());
  CHECK(configured_world_size(config) == 4);
  CHECK(fs::exists(kRoot / config.data.tokenizer));
  for (const auto& files : {config.data.train, config.data.validation})
    for (const auto& file : files) CHECK(fs::file_size(kRoot / file) > 10000);
}

// SHARDLINE_WRITE_DOCS=1 writes the file instead.
TEST_CASE("docs/config.md matches the list of keys", "[recipes]") {
  const fs::path path = kRoot / "docs/config.md";
  if (std::getenv("SHARDLINE_WRITE_DOCS")) std::ofstream(path, std::ios::binary) << config_reference_markdown();
  const bool same = text_of(path) == config_reference_markdown();
  INFO("run config_tests with SHARDLINE_WRITE_DOCS=1 to write " << path);
  CHECK(same);
}

}  // namespace shardline::recipes_test
