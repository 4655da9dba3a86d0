#include "pipeline/schedule/kinds/schedule_choice.h"

#include <algorithm>

#include "core/error.h"
#include "pipeline/schedule/checker.h"
#include "pipeline/schedule/files/schedule_file.h"
#include "pipeline/schedule/kinds/schedule_generators.h"

namespace shardline {
namespace {

struct Generator {
  const char* name;
  Schedule (*make)(const ScheduleChoice&);
};

const std::vector<Generator>& generators() {
  using Choice = const ScheduleChoice&;
  static const std::vector<Generator> all = {
      {"interleaved",
       [](Choice c) { return one_forward_one_backward(c.stages, c.microbatches, c.active_microbatches); }},
      {"simple", [](Choice c) { return simple_schedule(c.stages, c.microbatches, c.active_microbatches); }},
      {"interleaved_1f1b",
       [](Choice c) { return interleaved_1f1b(c.stages, c.microbatches, c.chunks_per_stage, c.active_microbatches); }},
      {"zb_h1", [](Choice c) { return zb_h1(c.stages, c.microbatches, c.active_microbatches); }},
      {"zb_h2", [](Choice c) { return zb_h2(c.stages, c.microbatches, c.active_microbatches); }},
      {"zbv", [](Choice c) { return zbv(c.stages, c.microbatches, c.active_microbatches); }},
      {"dualpipev", [](Choice c) { return dualpipev(c.stages, c.microbatches, c.active_microbatches); }},
  };
  return all;
}

Schedule from_file(const ScheduleChoice& choice) {
  const auto schedule = read_schedule_file(choice.pipeline);
  if (schedule.stages != choice.stages || schedule.microbatches != choice.microbatches)
    throw ConfigError(cat("the schedule ", choice.pipeline, " is for ", schedule.stages, " stages and ",
                          schedule.microbatches, " microbatches, but this run has ", choice.stages, " and ",
                          choice.microbatches,
                          " (microbatches of all accumulation steps): change the file, or pipeline_parallel_degree and "
                          "microbatches"));
  const auto report = check_schedule(schedule);
  if (!report.training) throw ConfigError(cat("the schedule ", choice.pipeline, " has only forward passes"));
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

bool is_schedule_file(const std::string& pipeline) {
  return pipeline.ends_with(".csv") || pipeline.ends_with(".json");
}

Schedule make_schedule(const ScheduleChoice& choice) {
  if (choice.chunks_per_stage > 1 && choice.pipeline != "interleaved_1f1b")
    throw ConfigError(cat("smp_options.virtual_pipeline_degree is ", choice.chunks_per_stage,
                          ", but smp_options.pipeline \"", choice.pipeline,
                          "\" says itself how many chunks a stage has; leave it out, or say \"interleaved_1f1b\""));
  if (is_schedule_file(choice.pipeline)) return from_file(choice);
  for (const auto& generator : generators())
    if (choice.pipeline == generator.name) return generator.make(choice);
  std::string names;
  for (const auto& name : schedule_names()) names += cat(names.empty() ? "\"" : ", \"", name, '"');
  throw ConfigError(cat("smp_options.pipeline is \"", choice.pipeline, "\", which is none of ", names,
                        " and no file *.csv or *.json"));
}

}  // namespace shardline
