#include "engine/report/run_history.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>

#include "core/error.h"
#include "core/files/json_data.h"
#include "engine/config/config.h"
#include "engine/observe/format.h"
#include "engine/plan/forecast.h"
#include "engine/plan/plan.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kMostEvents = 2'000'000, kMostBoxesOfRow = 2000;
constexpr int kMostRanksShown = 64;
constexpr double kMicro = 1e-6;

// "F3/1" of a timeline: forward of microbatch 3 in chunk 1; unset for what does not compute.
std::optional<Instruction> instruction_named(const std::string& name) {
  constexpr const char* kLetters = "FBW";
  constexpr std::array kOps = {Op::forward, Op::backward_input, Op::backward_weight};
  const char* letter = name.empty() ? nullptr : std::strchr(kLetters, name[0]);
  if (!letter) return {};
  Instruction instruction{.op = kOps[letter - kLetters]};
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

std::optional<double> RunHistory::planned_bubble() const {
  const auto found = plan.is_object() ? plan.find("bubble_fraction") : plan.end();
  return plan.is_object() && found != plan.end() && found->is_number() ? std::optional(found->get<double>())
                                                                      : std::nullopt;
}

std::string RunHistory::layout() const {
  try {
    const JsonValue file(plan, directory + "/plan.json");
    const JsonValue mesh = file.at("mesh");
    return cat("D=", mesh.at("d").integer(1), " P=", mesh.at("p").integer(1), " T=", mesh.at("t").integer(1),
               ", global batch ", file.at("sizes").at("global_batch").integer(1));
  } catch (const DataError&) {
    return "";
  }
}

RunHistory read_run(const std::string& directory, const std::string& name) {
  const std::string config = directory + "/config.resolved.json", metrics = directory + "/metrics.jsonl";
  for (const auto& file : {config, metrics})
    if (!fs::exists(file))
      throw ConfigError(cat(directory, " has no ", fs::path(file).filename().string(),
                            "; name the output_dir of a training run or of a study"));
  RunHistory run{.name = name, .directory = directory, .config = read_config(config), .metrics = read_metrics(metrics)};
  try {
    run.plan = read_data_json(directory + "/plan.json");
  } catch (const DataError& error) {
    run.notes.push_back(cat("plan.json: ", error.what()));
  }
  return run;
}

std::optional<std::vector<MemoryBytes>> planned_memory(RunHistory& run) {
  try {
    const JsonValue file(run.plan, run.directory + "/plan.json");
    const int ranks = file.at("mesh").at("size").integer(1);
    const PlannedModel planned = plan_model(run.config, ranks);
    return make_forecast(run.config, planned.machines, planned.plan).memory;
  } catch (const Error& error) {
    run.notes.push_back(cat("planned memory: ", error.what()));
    return {};
  }
}

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

std::optional<RunTimeline> read_timeline(RunHistory& run) {
  const std::string folder = run.directory + "/timeline";
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
  try {
    RunTimeline timeline = timeline_in(read_data_json(file), file, *first);
    return timeline.seconds > 0 ? std::optional(std::move(timeline)) : std::nullopt;
  } catch (const DataError& error) {
    run.notes.push_back(cat("timeline: ", error.what()));
    return {};
  }
}

}  // namespace shardline
