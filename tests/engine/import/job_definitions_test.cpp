#include "tests/engine/import/job_definitions.h"

#include <cstdlib>
#include <set>

#include "core/files/json_text.h"
#include "engine/config/config.h"

#include "tests/catch.h"

namespace shardline::job_definitions_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The paths of all values, except for objects and lists that contain values. Texts that contain objects count as
// objects.
void add_leaves(const json& value, const std::string& place, std::vector<std::string>& leaves) {
  if (value.is_structured() && !value.empty()) {
    size_t index = 0;
    for (const auto& item : value.items())
      add_leaves(item.value(),
                 cat(place, place.empty() ? "" : ".", value.is_array() ? std::to_string(index++) : item.key()), leaves);
    return;
  }
  if (value.is_string())
    if (const json inside = json_in_text(value.get<std::string>()); inside.is_object())
      return add_leaves(inside, place, leaves);
  leaves.push_back(place);
}

}  // namespace

// SHARDLINE_WRITE_GOLDEN=1 writes the files of golden/ instead.
TEST_CASE("each job definition has a table of where its keys went, and a config that is accepted") {
  const auto jobs = job_definitions();
  CHECK(jobs.size() >= 20);
  for (const auto& job : jobs) {
    INFO(job.filename().string());
    const Import import = import_text_as(text_of_job_file(job), job.filename().string(), options_of_job(job));
    INFO(refusals_text(import));
    CHECK(import.refused().empty());
    CHECK_NOTHROW(parse_config(import.config.dump(), "the config"));
    const std::string text = import_table(import) + "\n" + import.config.dump(2) + "\n";
    const fs::path golden = kJobs / "../golden" / (job.stem().string() + ".txt");
    if (std::getenv("SHARDLINE_WRITE_GOLDEN")) std::ofstream(golden, std::ios::binary) << text;
    CHECK(text_of_job_file(golden) == text);
  }
}

TEST_CASE("each value of a job definition belongs to one row of its table") {
  for (const auto& job : job_definitions()) {
    INFO(job.filename().string());
    std::set<std::string> rows;
    const Import import = import_text_as(text_of_job_file(job), job.filename().string(), options_of_job(job));
    for (const auto& key : import.keys) {
      INFO(key.name);
      CHECK(rows.insert(key.name).second);
    }
    if (job.extension() != ".json") continue;
    std::vector<std::string> leaves;
    if (const json value = json_in_text(text_of_job_file(job)); value.is_object()) add_leaves(value, "", leaves);
    const std::string place = job.stem() == "zero3" ? "deepspeed." : "";
    for (const auto& leaf : leaves) {
      INFO(leaf);
      size_t covering = 0;
      for (const auto& row : rows) covering += place + leaf == row || (place + leaf).starts_with(row + ".");
      CHECK(covering == 1);
    }
  }
}

}  // namespace shardline::job_definitions_test
