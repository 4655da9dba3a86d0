// Config words that are enums in the program.
#include "engine/config/keys/registry.h"

#include <map>

#include "tests/catch.h"

namespace shardline::registry_test {
namespace {

// Words that mean the same are loaded as the first one.
const std::map<std::string, std::string> kSynonyms = {{"DPT", "cluster"}, {"TPD", "spread"}};

TEST_CASE("Every word that a key takes is stored as a value of its own", "[config]") {
  int words = 0;
  for (const auto& section : config_sections()) {
    for (const auto& key : section.keys) {
      if (!key.store || !key.writes.empty()) continue;
      for (const auto& choice : key.type.choices) {
        if (!choice.advice.empty()) continue;  // known, but not available
        const std::string word = choice.value.starts_with('*') ? "a" + choice.value.substr(1) : choice.value;
        CAPTURE(section.name, key.name, word);
        Config config;
        key.store(config, word);
        const auto loaded = key.load(config);
        const auto synonym = kSynonyms.find(word);
        CHECK((loaded.is_array() ? loaded.at(0) : loaded) == (synonym == kSynonyms.end() ? word : synonym->second));
        ++words;
      }
    }
  }
  CHECK(words > 50);
}

}  // namespace
}  // namespace shardline::registry_test
