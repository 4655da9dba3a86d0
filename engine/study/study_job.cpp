#include "engine/study/study_job.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <ostream>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "core/files/regular_file.h"
#include "engine/observe/format.h"
#include "engine/run/local_cluster.h"
#include "engine/run/output_lock.h"
#include "engine/study/run_config.h"
#include "engine/study/run_pool.h"
#include "engine/study/run_results.h"
#include "engine/study/study_page.h"
#include "engine/study/study_summary.h"
#include "engine/study/study_table.h"
#include "partitioner/layout/cluster.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

StudyFile study_of(const std::string& path, const StudyOptions& options) {
  StudyFile study = read_study(path);
  if (!options.cluster.empty()) study.cluster = options.cluster;
  if (options.at_once > 0) study.at_once = options.at_once;
  return study;
}

// The prices of the machines that the runs use: from the price file, or else from their cluster files.
Prices prices_of(const StudyFile& study, const std::vector<StudyRun>& runs) {
  Prices prices;
  for (const auto& run : runs) {
    if (!run.planned()) continue;
    const Cluster cluster = read_cluster(run.cluster);
    if (cluster.hourly_price) prices.hourly[cluster.name] = *cluster.hourly_price;
  }
  if (study.prices.empty()) return prices;
  const Prices given = read_prices(study.prices);
  prices.currency = given.currency;
  for (const auto& [machine, price] : given.hourly) prices.hourly[machine] = price;
  return prices;
}

// Throws ConfigError if the directory has a run of this name with another config.
void check_same_config(const StudyFile& study, const StudyRun& run) {
  const std::string path = config_of(study, run.name);
  const Config before = read_config(path);
  if (before == run.config) return;
  std::string changes;
  for (const auto& setting : settings_between(before, run.config)) changes += " " + setting;
  throw ConfigError(cat(study.file, ": run ", run.name, " has finished, but with different settings (now", changes,
                        "); give it another name, choose another output_dir, or remove ",
                        directory_of(study, run.name)));
}

// The finished runs of earlier calls: those that the study still has, by name, and the others.
struct FinishedRuns {
  std::map<std::string, RunRecord> of_study;
  std::vector<RunRecord> others;
};

// What an earlier run did; unset if its config cannot be read.
std::optional<std::string> work_of_finished(const StudyFile& study, const RunRecord& record) {
  StudyRun run{.name = record.name, .cluster = record.kind == RunKind::planned ? "planned" : "", .nodes = record.nodes};
  try {
    run.config = read_config(config_of(study, record.name));
  } catch (const Error&) {
    return {};
  }
  return work_of(run);
}

// Failed runs, and runs without the study's metric, do not count. A run that finished under another name, as happens
// when an axis is added, is recognised by its config and renamed.
FinishedRuns finished_runs(const StudyFile& study, std::vector<StudyRun>& runs) {
  std::map<std::string, RunRecord> records;
  for (const auto& file : {other_records_file(study.output_dir), records_file(study.output_dir)})
    for (auto& record : read_records(file))
      if (record.kind != RunKind::failed && fs::exists(config_of(study, record.name)))
        records[record.name] = std::move(record);
  FinishedRuns finished;
  const auto take = [&](const std::string& name) { finished.of_study.insert(records.extract(name)); };
  std::vector<StudyRun*> open;
  for (auto& run : runs) {
    const auto same_name = records.find(run.name);
    if (same_name == records.end()) {
      open.push_back(&run);
    } else if (run.planned() != (same_name->second.kind == RunKind::planned) ||
               lacks_metric(study, same_name->second)) {
      records.erase(same_name);  // the new run takes its directory
      open.push_back(&run);
    } else {
      check_same_config(study, run);
      take(run.name);
    }
  }
  std::multimap<std::string, std::string> names;  // by what the runs did
  if (!open.empty())
    for (const auto& [name, record] : records)
      if (const auto work = work_of_finished(study, record); work && !lacks_metric(study, record))
        names.emplace(*work, name);
  for (StudyRun* run : open) {
    const auto found = names.find(work_of(*run));
    if (found == names.end()) continue;
    move_to(*run, study, found->second);
    take(found->second);
    names.erase(found);
  }
  for (auto& [name, record] : records) finished.others.push_back(std::move(record));
  return finished;
}

// The runs with their results so far, in the order of the study.
class Results {
 public:
  Results(const StudyFile& study, const std::vector<StudyRun>& runs, std::map<std::string, RunRecord> finished)
      : study_(study), runs_(runs), prices_(prices_of(study, runs)), found_(std::move(finished)) {
    for (const auto& run : runs)  // with the current settings of the study's file
      if (const auto found = found_.find(run.name); found != found_.end()) describe_run(run, prices_, found->second);
  }

  bool has(const StudyRun& run) const { return found_.contains(run.name); }
  size_t count() const { return found_.size(); }

  const RunRecord& add(const StudyRun& run, const ProgramEnd& end) {
    const RunRecord& record = found_[run.name] = record_of_run(study_, run, prices_, end);
    write_summary(study_.output_dir, summary());
    return record;
  }

  StudySummary summary() const {
    StudySummary summary{.name = fs::path(study_.file).filename(),
                         .metric = study_.metric,
                         .source = study_.source,
                         .prices = prices_,
                         .records = {}};
    for (const auto& run : runs_)
      if (const auto found = found_.find(run.name); found != found_.end()) summary.records.push_back(found->second);
    return summary;
  }

 private:
  const StudyFile& study_;
  const std::vector<StudyRun>& runs_;
  Prices prices_;
  std::map<std::string, RunRecord> found_;
};

void remove_directory(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw file_error(path, "cannot be removed", error.value());
}

std::string line_of(const RunRecord& record) {
  if (record.kind == RunKind::failed) return cat(record.name, ": failed: ", record.error);
  return cat(record.name, ": ", to_string(record.kind), ", ", record.steps, " steps of ",
             format_duration(record.step_seconds), ", ", format_duration(record.job_seconds));
}

PoolProgram program_of(const StudyFile& study, const StudyRun& run) {
  const std::string program = fs::read_symlink("/proc/self/exe"), config = config_of(study, run.name);
  PoolProgram made{.command = {program, "train", config},
                   .output = log_of(study, run.name),
                   .errors = log_of(study, run.name),
                   .cores = cores_of(run),
                   .limit = std::chrono::seconds(study.timeout_seconds),
                   .starts = {},
                   .ends = {}};
  if (!run.planned()) return made;
  made.command = {program, "plan", config, "--nodes", std::to_string(run.nodes), "--json"};
  made.output = plan_of(study, run.name);
  return made;
}

void write_outputs(const StudyFile& study, const StudySummary& summary, std::ostream& out) {
  const StudyTable table = study_table(summary.records, summary.metric, summary.prices.currency);
  write_summary(study.output_dir, summary);
  write_file(study.output_dir + "/study.csv", table_csv(table));
  write_file(study.output_dir + "/study.html", study_page(summary));
  out << '\n'
      << summary_text(summary) << "\nwrote study.jsonl, study.csv and study.html in " << study.output_dir << std::endl;
}

}  // namespace

int study_job(const std::string& path, const StudyOptions& options, std::ostream& out) {
  const StudyFile study = study_of(path, options);
  std::vector<StudyRun> runs = expand(study);
  make_directories(study.output_dir);
  const OutputLock lock(study.output_dir, "output_dir", study.output_dir);
  FinishedRuns finished = finished_runs(study, runs);
  // Written first, because study.jsonl will then have only the study's own runs.
  if (const auto others = other_records_file(study.output_dir); fs::exists(others) || !finished.others.empty())
    write_records(others, finished.others);
  Results results(study, runs, std::move(finished.of_study));
  if (results.count() > 0) out << results.count() << " of " << runs.size() << " runs had already finished" << std::endl;
  std::vector<PoolProgram> programs;
  for (const auto& run : runs) {
    if (results.has(run)) continue;
    PoolProgram program = program_of(study, run);
    program.starts = [&] {
      // An attempt that did not finish left records and checkpoints that do not belong to this run.
      remove_directory(output_of(study, run.name));
      remove_directory(checkpoints_of(study, run.name));
      make_directories(directory_of(study, run.name));
      write_file(config_of(study, run.name), resolved(run.config).dump(2) + "\n");
    };
    program.ends = [&](const ProgramEnd& end) {
      const RunRecord& record = results.add(run, end);
      out << '[' << results.count() << '/' << runs.size() << "] " << line_of(record) << std::endl;
    };
    programs.push_back(std::move(program));
  }
  run_programs(programs, usable_cores(), study.at_once);
  const StudySummary summary = results.summary();
  write_outputs(study, summary, out);
  return std::ranges::any_of(summary.records, [](const RunRecord& record) { return record.kind == RunKind::failed; });
}

}  // namespace shardline
