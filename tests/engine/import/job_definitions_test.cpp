#include "tests/engine/import/job_definitions.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>

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

// The same for a command line, as place.key: options before the script belong to its launcher.
void add_arguments(const std::string& text, std::vector<std::string>& leaves) {
  std::string line;
  std::vector<std::string> words;
  for (std::istringstream lines(text); std::getline(lines, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream in_line(line);
    for (std::string word; in_line >> word;)
      if (word != "\\") words.push_back(word);
  }
  const auto script = std::ranges::find_if(words, [](const std::string& word) { return word.ends_with(".py"); });
  std::string place = script == words.end() ? "arguments." : "launcher.";
  if (script != words.end()) leaves.insert(leaves.end(), {"launcher.words", "launcher.script"});
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (word == script) place = "arguments.";
    if (word->starts_with("--")) leaves.push_back(place + word->substr(2, word->find('=') - 2));
  }
}

// The same for YAML whose maps are indented by two spaces, without lists.
void add_lines(const std::string& text, const std::string& place, std::vector<std::string>& leaves) {
  std::vector<std::string> steps;
  std::string line;
  for (std::istringstream lines(text); std::getline(lines, line);) {
    const size_t indent = line.find_first_not_of(' '), colon = line.find(':');
    REQUIRE(colon != std::string::npos);
    REQUIRE(indent / 2 <= steps.size());
    steps.resize(indent / 2);
    steps.push_back(line.substr(indent, colon - indent));
    if (colon + 1 == line.size()) continue;
    std::string leaf = place;
    for (const auto& step : steps) leaf += "." + step;
    leaves.push_back(leaf);
  }
}

// The same for the text of a file with this extension.
void add_values(const std::string& text, const std::string& extension, const std::string& place,
                std::vector<std::string>& leaves) {
  if (extension == ".txt") return add_arguments(text, leaves);
  if (extension == ".yaml") return add_lines(text, place, leaves);
  if (const json value = json_in_text(text); value.is_object()) add_leaves(value, place, leaves);
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
    std::set<std::string> rows, files;  // files: rows that name a file, whose keys have rows, too
    std::vector<std::string> leaves;
    const std::string text = text_of_job_file(job), extension = job.extension().string();
    add_values(text, extension, extension == ".yaml" ? "accelerate" : job.stem() == "zero3" ? "deepspeed" : "", leaves);
    const Import import = import_text_as(text, job.filename().string(), options_of_job(job));
    for (const auto& key : import.keys) {
      INFO(key.name);
      CHECK(rows.insert(key.name).second);
      if (key.outcome.note != "the keys of this file follow") continue;
      files.insert(key.name);
      const fs::path named = key.value.get<std::string>();
      add_values(text_beside_jobs(named.string()), named.extension().string(), key.name, leaves);
    }
    if (extension != ".json") CHECK(leaves.size() >= 3);  // some JSON files are lists of words
    for (const auto& leaf : leaves) {
      INFO(leaf);
      CHECK(std::ranges::count_if(rows, [&](const std::string& row) {
              return leaf == row || (leaf.starts_with(row + ".") && !files.contains(row));
            }) == 1);
    }
  }
}

}  // namespace shardline::job_definitions_test
