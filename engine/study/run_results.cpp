#include "engine/study/run_results.h"

#include <cmath>
#include <sstream>

#include "core/error.h"
#include "core/files/json_data.h"
#include "core/files/regular_file.h"
#include "core/plain_text.h"
#include "engine/observe/format.h"
#include "engine/observe/recorded_metrics.h"
#include "engine/train/measured_run.h"
#include "partitioner/layout/cluster.h"

namespace shardline {
namespace {

using nlohmann::json;

std::string layout_of(const JsonValue& plan) {
  const JsonValue mesh = plan.at("mesh");
  return cat("D=", mesh.at("d").integer(1), " P=", mesh.at("p").integer(1), " T=", mesh.at("t").integer(1));
}

double positive(const JsonValue& plan, const char* key) {
  return plan.at(key).require(json_number(0)).get<double>();
}

void read_measured(const StudyFile& study, const StudyRun& run, const ProgramEnd& end, RunRecord& record) {
  const std::string output = output_of(study, run.name);
  const RecordedMetrics metrics = read_metrics(output + "/metrics.jsonl");
  if (metrics.steps.empty()) throw DataError(output + "/metrics.jsonl has no step");
  const json plan = read_data_json(output + "/plan.json");
  record.layout = layout_of({plan, output + "/plan.json"});
  record.steps = metrics.steps.back().step;
  record.step_seconds = measured_run(output).step_seconds;
  record.job_seconds = end.seconds;
  record.samples_per_second = record.global_batch / record.step_seconds;
  if (!metrics.evaluations.empty())
    for (const auto& [name, value] : metrics.evaluations.back().values) {
      if (std::isfinite(value))
        record.metrics[name] = value;
      else if (name == study.metric)
        throw DataError(
            cat("its last ", name, " is ", value, ": the run has diverged; see ", output, "/metrics.jsonl"));
    }
  if (lacks_metric(study, record)) throw DataError(cat(output, "/metrics.jsonl has no ", study.metric));
}

void read_planned(const StudyFile& study, const StudyRun& run, RunRecord& record) {
  const std::string path = plan_of(study, run.name);
  const json object = read_data_json(path);
  const JsonValue plan(object, path);
  record.layout = layout_of(plan);
  record.steps = run.steps;
  record.step_seconds = positive(plan, "step_seconds");
  record.job_seconds = record.steps * record.step_seconds;
  record.samples_per_second = positive(plan, "samples_per_second");
  record.parameters = plan.at("parameters").require(json_integer(1, 9007199254740991)).get<int64_t>();
  if (!plan.at("fits").require(json_boolean()).get<bool>())
    throw DataError("does not fit on the devices: " + plan.text("memory", ""));
}

// The last error that a run printed, or else its last line.
std::string last_words(const std::string& log) {
  std::istringstream lines(read_regular_file(log));
  std::string last, error;
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    last = line;
    if (line.starts_with("error: ")) error = line.substr(7);
  }
  return plain_text(error.empty() ? last : error);
}

std::string reason_of(const StudyFile& study, const StudyRun& run, const ProgramEnd& end) {
  const std::string log = log_of(study, run.name);
  std::string said;
  try {
    said = last_words(log);
  } catch (const DataError&) {  // the log was not even created
  }
  return cat(end.timed_out ? cat("took longer than ", study.timeout_seconds, " s (timeout_seconds)")
                           : cat("ended with code ", end.code),
             said.empty() ? "" : ": ", said, "; see ", log);
}

}  // namespace

std::string plan_of(const StudyFile& study, const std::string& run) {
  return directory_of(study, run) + "/plan.json";
}

bool lacks_metric(const StudyFile& study, const RunRecord& record) {
  return record.kind == RunKind::measured && !study.metric.empty() && !record.metrics.contains(study.metric);
}

RunRecord record_of_run(const StudyFile& study, const StudyRun& run, const Prices& prices, const ProgramEnd& end) {
  RunRecord record;
  describe_run(run, prices, record);
  record.kind = run.planned() ? RunKind::planned : RunKind::measured;
  try {
    if (end.code != 0 || end.timed_out) throw RunError(reason_of(study, run, end));
    if (run.planned())
      read_planned(study, run, record);
    else
      read_measured(study, run, end, record);
  } catch (const std::exception& error) {
    record.kind = RunKind::failed;
    record.error = error.what();
  }
  describe_run(run, prices, record);  // now with its time
  return record;
}

void describe_run(const StudyRun& run, const Prices& prices, RunRecord& record) {
  record.name = run.name;
  record.group = run.group;
  record.factors = run.point->factors;
  record.published = run.point->published;
  record.machine = run.planned() ? read_cluster(run.cluster).name : Prices::kLocal;
  record.devices = run.devices;
  record.nodes = run.nodes;
  record.global_batch = run.global_batch;
  record.batch_per_device = run.batch_per_device;
  record.learning_rate = run.config.training.learning_rate;
  record.samples = run.samples;
  if (!run.planned()) record.seed = run.config.training.seed;
  record.nominal_steps = run.nominal_steps;
  const auto price = prices.of(record.machine);
  if (price && record.kind != RunKind::failed)
    record.cost = *price * record.nodes * record.job_seconds / 3600;
  else
    record.cost.reset();
}

}  // namespace shardline
