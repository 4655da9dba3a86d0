// Descriptions of jobs for other programs: JSON, YAML or a command line. A second file replaces each file that the
// first one names; the lines of a third are given to --set, except that "no channel" leaves out the channel train, for
// jobs that name their own files. Each key is in the table exactly once, and an accepted job either gives a config or
// is refused.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "engine/config/config.h"
#include "engine/import/import.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::import_fuzz {
namespace {

bool commands_terminal(const std::string& text) {
  return std::ranges::any_of(text, [](unsigned char c) { return (c < 0x20 && c != '\n') || c == 0x7f; });
}

int depth_of(const nlohmann::json& value) {
  int deepest = 0;
  if (value.is_structured())
    for (const auto& item : value) deepest = std::max(deepest, 1 + depth_of(item));
  return deepest;
}

}  // namespace

FUZZ_TARGET(import) {
  auto files = fuzz::files_of(data, size, {"job", "named", "settings"});
  std::istringstream lines(files["settings"]);
  ImportOptions options{.channels = {{"train", "here.txt"}}, .hosts = {}, .ranks = 4};
  for (std::string setting; std::getline(lines, setting);)
    if (setting == "no channel")
      options.channels.clear();
    else
      options.settings.push_back(setting);
  constexpr fuzz::Allowance for_rows{.fixed = 8 << 20, .per_byte = 4096};
  std::optional<Import> made;
  const bool is_read = fuzz::accepts(
      size,
      [&] {
        const auto jobs = read_job(files["job"], "job");
        for (const auto& job : jobs) FUZZ_REQUIRE(job.value.is_object() && depth_of(job.value) < 1000, job.kind);
        made = import_job(jobs, options, [&](const std::string&) { return files["named"]; });
      },
      for_rows);
  if (!is_read) return false;
  std::set<std::string> names;
  for (const auto& key : made->keys) {
    FUZZ_REQUIRE(names.insert(key.name).second, key.name, " has two rows");
    FUZZ_REQUIRE(key.outcome.fate != Fate::mapped || !key.outcome.target.empty(), key.name, " went nowhere");
    FUZZ_REQUIRE(key.outcome.fate == Fate::mapped || !key.outcome.note.empty(), key.name, " has no reason");
  }
  fuzz::accepts(
      size,
      [&] {
        FUZZ_REQUIRE(!commands_terminal(import_table(*made)), "the table commands the terminal");
        FUZZ_REQUIRE(!commands_terminal(refusals_text(*made)), "the refusals command the terminal");
      },
      for_rows);
  if (!made->refused().empty()) return false;
  const std::string text = made->config.dump();
  return fuzz::accepts(size + text.size(), [&] { parse_config(text, "config.json"); }, {.fixed = 4 << 20});
}

}  // namespace shardline::import_fuzz
