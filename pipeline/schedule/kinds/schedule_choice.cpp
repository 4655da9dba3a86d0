#include "pipeline/schedule/kinds/schedule_choice.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "pipeline/schedule/checker.h"
#include "pipeline/schedule/files/schedule_file.h"
#include "pipeline/schedule/kinds/schedule_generators.h"

namespace shardline {
namespace {

struct Generator {
  ScheduleKind kind;
  const char* name;
  int chunks;  // own_chunks_per_stage
  Schedule (*make)(const ScheduleChoice&);
};

const std::vector<Generator>& generators() {
  using Choice = const ScheduleChoice&;
  static const std::vector<Generator> all = {
      {ScheduleKind::interleaved, "interleaved", 1,
       [](Choice c) { return one_forward_one_backward(c.stages, c.microbatches, c.active_microbatches); }},
      {ScheduleKind::simple, "simple", 1,
       [](Choice c) { return simple_schedule(c.stages, c.microbatches, c.active_microbatches); }},
      {ScheduleKind::interleaved_1f1b, "interleaved_1f1b", 0,
       [](Choice c) { return interleaved_1f1b(c.stages, c.microbatches, c.chunks_per_stage, c.active_microbatches); }},
      {ScheduleKind::zb_h1, "zb_h1", 1,
       [](Choice c) { return zb_h1(c.stages, c.microbatches, c.active_microbatches); }},
      {ScheduleKind::zb_h2, "zb_h2", 1,
       [](Choice c) { return zb_h2(c.stages, c.microbatches, c.active_microbatches); }},
      {ScheduleKind::zbv, "zbv", 2, [](Choice c) { return zbv(c.stages, c.microbatches, c.active_microbatches); }},
      {ScheduleKind::dualpipev, "dualpipev", 2,
       [](Choice c) { return dualpipev(c.stages, c.microbatches, c.active_microbatches); }},
  };
  return all;
}

const Generator& generator_of(ScheduleKind kind) {
  const auto found = std::ranges::find(generators(), kind, &Generator::kind);
  SL_ASSERT(found != generators().end(), "no generator makes a schedule that is read from a file");
  return *found;
}

Schedule from_file(const ScheduleChoice& choice) {
  const auto schedule = read_schedule_file(choice.pipeline.path);
  if (schedule.stages != choice.stages || schedule.microbatches != choice.microbatches)
    throw ConfigError(cat("the schedule ", choice.pipeline, " is for ", schedule.stages, " stages and ",
                          schedule.microbatches, " microbatches, but this run has ", choice.stages, " and ",
                          choice.microbatches,
                          " (microbatches of all accumulation steps): change the file, or pipeline_parallel_degree and "
                          "microbatches"));
  const auto report = check_schedule(schedule);
  if (!report.training)
    throw ConfigError(cat("the schedule ", choice.pipeline, " has only forward passes; add the backward passes"));
  const int kept = *std::max_element(report.peak_activations.begin(), report.peak_activations.end());
  if (choice.active_microbatches > 0 && choice.active_microbatches < kept)
    throw ConfigError(cat("smp_options.active_microbatches is ", choice.active_microbatches, ", but the schedule ",
                          choice.pipeline, " keeps up to ", kept, " microbatches of its chunks active: its minimum is ",
                          kept));
  return schedule;
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const auto names = [] {
    std::vector<std::string> all;
    for (const auto& generator : generators()) all.push_back(generator.name);
    return all;
  }();
  return names;
}

ScheduleSource::ScheduleSource(const std::string& text) {
  if (text.ends_with(".csv") || text.ends_with(".json")) {
    kind = ScheduleKind::file;
    path = text;
    return;
  }
  const auto found = std::ranges::find(generators(), text, &Generator::name);
  if (found == generators().end()) {
    std::string names;
    for (const auto& name : schedule_names()) names += cat(names.empty() ? "\"" : ", \"", name, '"');
    throw ConfigError(
        cat("smp_options.pipeline is \"", text, "\", which is neither one of ", names, " nor a file *.csv or *.json"));
  }
  kind = found->kind;
}

std::string to_string(const ScheduleSource& source) {
  return source.is_file() ? source.path : generator_of(source.kind).name;
}

std::ostream& operator<<(std::ostream& out, const ScheduleSource& source) {
  return out << to_string(source);
}

void to_json(nlohmann::json& json, const ScheduleSource& source) {
  json = to_string(source);
}

void from_json(const nlohmann::json& json, ScheduleSource& source) {
  source = json.get<std::string>();
}

int own_chunks_per_stage(ScheduleKind kind) {
  return kind == ScheduleKind::file ? 0 : generator_of(kind).chunks;
}

Schedule make_schedule(const ScheduleChoice& choice) {
  if (choice.chunks_per_stage > 1 && choice.pipeline.kind != ScheduleKind::interleaved_1f1b)
    throw ConfigError(cat("smp_options.virtual_pipeline_degree is ", choice.chunks_per_stage,
                          ", but smp_options.pipeline \"", choice.pipeline,
                          "\" determines the chunks per stage itself; leave it out, or use \"interleaved_1f1b\""));
  return choice.pipeline.is_file() ? from_file(choice) : generator_of(choice.pipeline.kind).make(choice);
}

}  // namespace shardline
