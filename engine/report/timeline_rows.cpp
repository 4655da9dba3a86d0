#include "engine/report/timeline_rows.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/files/json_data.h"
#include "engine/observe/format.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kMostEvents = 2'000'000, kMostBoxesOfRow = 2000;
constexpr int kMostRanksShown = 64;
constexpr double kMicro = 1e-6;

// "F3/1" in a timeline: forward of microbatch 3 in chunk 1; unset for events that compute nothing.
std::optional<Instruction> instruction_named(const std::string& name) {
  constexpr std::string_view kLetters = "FBW";
  constexpr std::array kOps = {Op::forward, Op::backward_input, Op::backward_weight};
  const size_t letter = name.empty() ? kLetters.npos : kLetters.find(name[0]);
  if (letter == kLetters.npos) return {};
  Instruction instruction{.op = kOps[letter]};
  const char *end = name.data() + name.size(), *next = name.data() + 1;
  const auto read_into = [&](int& number) {
    const auto [after, error] = std::from_chars(next, end, number);
    next = after;
    return error == std::errc();
  };
  if (!read_into(instruction.microbatch)) return {};
  if (next != end && *next++ == '/' && !read_into(instruction.chunk)) return {};
  return next == end ? std::optional(instruction) : std::nullopt;
}

}  // namespace

RunTimeline timeline_in(const json& trace, const std::string& file, int64_t step) {
  RunTimeline timeline{.step = step};
  std::map<int, PictureRow> rows;
  const auto events = JsonValue(trace, file).at("traceEvents").items();
  if (events.size() > kMostEvents) throw DataError(cat(file, ": has more than ", kMostEvents, " events"));
  for (const auto& event : events) {
    if (event.text("ph", "") == "M" && event.text("name", "") == "process_name") {
      const int rank = event.at("pid").integer(0);
      if (rank < kMostRanksShown) rows[rank].label = event.at("args").text("name", "");
    }
    if (event.text("cat", "") != "instructions" || event.text("ph", "") != "X") continue;
    const auto instruction = instruction_named(event.text("name", ""));
    const int rank = event.at("pid").integer(0);
    if (!instruction || rank >= kMostRanksShown || rows[rank].boxes.size() >= kMostBoxesOfRow) continue;
    const auto time = [&](const char* key) {
      return kMicro * event.at(key).require(json_number(0, 1e15)).get<double>();
    };
    const double start = time("ts"), end = start + time("dur");
    rows[rank].boxes.push_back(
        {start, end, *instruction, cat(to_string(*instruction), ": ", format_duration(end - start))});
    timeline.seconds = std::max(timeline.seconds, end);
  }
  for (auto& [rank, row] : rows) timeline.rows.push_back(std::move(row));
  return timeline;
}

std::optional<RunTimeline> read_timeline(const std::string& output_dir) {
  const std::string folder = output_dir + "/timeline";
  std::optional<int64_t> first;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    const std::string name = entry.path().filename();
    int64_t step = 0;
    if (!name.starts_with("step-") || !name.ends_with(".json")) continue;
    const char* end = name.data() + name.size() - 5;
    if (std::from_chars(name.data() + 5, end, step).ptr == end && (!first || step < *first)) first = step;
  }
  if (!first) return {};
  const std::string file = cat(folder, "/step-", *first, ".json");
  RunTimeline timeline = timeline_in(read_data_json(file), file, *first);
  return timeline.seconds > 0 ? std::optional(std::move(timeline)) : std::nullopt;
}

}  // namespace shardline
