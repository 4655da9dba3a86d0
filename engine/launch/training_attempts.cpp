#include "engine/launch/training_attempts.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <thread>
#include <tuple>

#include "core/error.h"
#include "engine/checkpoint/checkpoint_directory.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/state_files.h"
#include "engine/config/rules/optimizer_rules.h"
#include "engine/config/rules/saving_rules.h"
#include "engine/config/rules/sizes.h"
#include "engine/launch/exit_codes.h"
#include "engine/launch/fewer_hosts.h"
#include "engine/launch/restarts.h"
#include "engine/launch/start_ranks.h"
#include "engine/plan/batch_size.h"
#include "engine/run/output_dir.h"
#include "engine/run/output_lock.h"
#include "engine/run/resuming_command.h"
#include "optim/update/added_optimizer.h"

namespace shardline {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPause = 5s;  // between two attempts to reach hosts that do not answer

// Returns none if the directory cannot be read, because the reason why the ranks ended is more important.
std::vector<CheckpointPlace> checkpoints_seen(const std::string& directory) {
  try {
    return checkpoints_in(directory);
  } catch (const RunError&) {
    return {};
  }
}

// Distinguishes checkpoints that this job has saved from earlier ones, as far as this host sees them.
class SavedCheckpoints {
 public:
  // Throws RunError if the directory cannot be read.
  explicit SavedCheckpoints(std::string directory) : directory_(std::move(directory)) {
    checkpoints_in(directory_);
    has_new();
  }

  // Whether complete checkpoints have appeared since the last call; false if the directory cannot be read.
  bool has_new() {
    std::vector<CheckpointPlace> places;
    try {
      places = checkpoints_in(directory_);
    } catch (const RunError&) {  // it may become readable later, and its contents are not new then
      return false;
    }
    std::set<Identity> now;
    for (const auto& place : places) {
      if (checkpoint_of_part(place.path)) continue;  // other hosts may not have the other parts
      struct stat status = {};
      if (::stat((place.path / kManifestFile).c_str(), &status) == 0)
        now.insert({place.step, status.st_ino, status.st_mtim.tv_sec, status.st_mtim.tv_nsec});
    }
    const bool has_more = !std::ranges::includes(seen_, now);
    seen_ = std::move(now);
    return has_more;
  }

 private:
  using Identity = std::tuple<int64_t, ino_t, time_t, long>;
  std::string directory_;
  std::set<Identity> seen_;
};

bool has_optimizer_states(const TrainingOptions& training) {
  const OptimizerOptions options = optimizer_options(training);
  if (options.kind == OptimizerOptions::Kind::added) return !rule_of(options).states.empty();
  return options.kind != OptimizerOptions::Kind::sgd || options.momentum != 0;
}

// One job and what is known of it between its attempts.
class Attempts {
 public:
  Attempts(const TrainingJobs& jobs, std::ostream& log)
      : jobs_(jobs), config_(jobs.first.config), log_(log), checkpoints_(checkpoint_directory(config_)) {}

  int run() {
    Restarts restarts(config_.mpi.max_restarts);
    TrainingJob job = jobs_.first;
    while (true) {
      const MpirunEnd end = run_ranks_of(job.config, job.arguments, log_);
      // Rank 0 may be on another host, with its checkpoints; but it learns of the last one only after another step.
      const bool saved = end.news.contains(News::saved) || checkpoints_.has_new();
      has_saved_ = has_saved_ || saved;
      has_trained_ = has_trained_ || end.news.contains(News::trains);
      if (takes_smaller_batch(end, job.config)) {
        log_ << lines_without_prefix(end.failure) << std::flush;
        const Config before = job.config;
        job = next_job_after_end();
        log_ << "starting again with " << batch_changes(before, job.config) << std::endl;
        continue;
      }
      const bool again = restarts.again_after({.exit_code = end.exit_code,
                                               .asked_to_stop = end.asked_to_stop || is_asked_to_stop(),
                                               .finished = end.news.contains(News::finished),
                                               .saved_something = saved});
      if (!again) {
        const bool lost_nothing = end.asked_to_stop && !end.news.contains(News::trains);
        if (end.exit_code == kExitFailed && lost_nothing && can_continue()) end_on_request("before its first step");
        if (!restarts.reason().empty()) log_ << restarts.reason() << '\n';
        log_ << end.failure << (end.exit_code == kExitFailed ? how_to_continue() : "") << std::flush;
        return has_trained_ && end.exit_code == kExitConfig ? kExitFailed : exit_code_of_program(end);
      }
      log_ << "attempt " << restarts.attempts() << " failed:\n" << lines_without_prefix(end.failure) << std::flush;
      job = next_job_after_end();
      log_ << "attempt " << restarts.attempts() + 1 << " of at most " << config_.mpi.max_restarts + 1 << ' '
           << where_it_continues() << std::endl;
    }
  }

 private:
  // Whether the next attempt looks for the newest intact checkpoint, and there may be one.
  bool continues() const {
    const auto source = resume_source(config_).kind;
    return has_saved_ || source == ResumeSource::Kind::newest ||
           (source == ResumeSource::Kind::newest_or_fresh &&
            std::ranges::any_of(checkpoints_seen(checkpoint_directory(config_)),
                                [&](const auto& place) { return is_usable(place); }));
  }

  bool can_continue() const { return continues() || !resume_source(config_).path.empty(); }

  // The checkpoint outside of the job's directories from which the job starts; empty: none.
  std::string start_elsewhere() const {
    const ResumeSource first = resume_source(config_);
    return first.kind == ResumeSource::Kind::path && !is_in_place(config_, first.path) ? first.path : "";
  }

  // resume_from_checkpoint of the next attempt; empty: as in the first attempt. Until this job has trained, checkpoints
  // in the directory may belong to another run, which it replaces. Later, all of them are its own, even those that no
  // rank has reported as complete on all hosts.
  std::string source_to_continue() const {
    const auto kind = resume_source(config_).kind;
    const bool owns_directory = has_saved_ || has_trained_;
    if (kind == ResumeSource::Kind::fresh)
      return owns_directory || !config_.training.overwrite_output_dir ? "auto" : "";
    if (kind != ResumeSource::Kind::path) return "";
    const std::string elsewhere = start_elsewhere();
    if (elsewhere.empty()) return has_saved_ ? "auto" : "";
    return owns_directory ? nlohmann::json{"auto", elsewhere}.dump() : "";
  }

  std::vector<std::string> settings_to_continue() const {
    std::vector<std::string> settings = batch_settings_;
    if (const std::string source = source_to_continue(); !source.empty())
      settings.push_back("training.resume_from_checkpoint=" + source);
    return settings;
  }

  // Whether the ranks ran out of memory and the config allows a smaller batch. If so, all later attempts use the
  // smaller batch.
  bool takes_smaller_batch(const MpirunEnd& end, const Config& failed) {
    if (!end.news.contains(News::out_of_memory) || !failed.training.auto_find_batch_size) return false;
    if (end.asked_to_stop || is_asked_to_stop()) return false;
    const auto half = settings_for_half_batch(failed);
    if (half) batch_settings_.insert(batch_settings_.end(), half->begin(), half->end());
    return half.has_value();
  }

  TrainingJob next_job_after_end() const try {
    wait_for_output_dir();
    return next_job();
  } catch (const ConfigError& error) {
    throw RunError(cat("the run cannot start again: ", error.what()));
  }

  std::string where_it_continues() const {
    const std::string elsewhere = has_trained_ ? start_elsewhere() : "";
    if (!continues() && elsewhere.empty())
      return "starts as the first one did: no checkpoint is known to have been saved";
    return cat("continues from the newest intact checkpoint in ", checkpoint_directory(config_),
               continues() ? "" : ", or else from " + elsewhere);
  }

  // A rank that cannot be reached may use output_dir until it ends itself.
  void wait_for_output_dir() const {
    const auto limit = std::chrono::seconds(config_.mpi.host_timeout) + 10s;
    for (const auto deadline = Clock::now() + limit;; sleep(500ms)) {
      try {
        check_not_in_use(config_.output_dir, "/output_dir");
        return check_not_in_use(checkpoint_directory(config_), "/training/checkpoint_dir");
      } catch (const ConfigError&) {
        if (Clock::now() >= deadline) throw;
      }
    }
  }

  // Returns a job on all hosts, or on those that answer if the config is elastic. Waits for hosts that do not answer.
  TrainingJob next_job() const {
    const auto hosts = hosts_of_ranks(config_);
    if (hosts.empty()) return jobs_.with(settings_to_continue());
    const auto limit = std::chrono::seconds(config_.training.ddp_timeout);
    std::string obstacle;
    bool said = false;
    for (const auto deadline = Clock::now() + limit;; sleep(kPause)) {
      const auto answering = hosts_that_answer(config_, hosts);
      end_if_asked();
      if (answering.size() == hosts.size()) return jobs_.with(settings_to_continue());
      std::vector<std::string> missing;
      std::ranges::set_difference(sorted(hosts), sorted(answering), std::back_inserter(missing));
      if (config_.mpi.elastic && !answering.empty()) {
        try {
          return job_without(missing, answering);
        } catch (const ConfigError& error) {
          obstacle = cat("; ", error.what());
        }
      }
      if (Clock::now() >= deadline)
        throw RunError(cat("the run cannot start again, because these hosts did not answer for ", limit.count(),
                           " s (training.ddp_timeout): ", host_list(missing), obstacle));
      if (!said) log_ << "waiting for these hosts to answer: " << host_list(missing) << obstacle << std::endl;
      said = true;
    }
  }

  TrainingJob job_without(const std::vector<std::string>& missing, const std::vector<std::string>& answering) const {
    const auto places = checkpoints_seen(checkpoint_directory(config_));
    if (!places.empty() && checkpoint_of_part(places.front().path))
      throw ConfigError(
          cat(*checkpoint_of_part(places.front().path),
              " has parts on the missing hosts; with training.save_on_each_node, every host has all of it"));
    TrainingJob job;
    const auto settings = [&](const std::vector<std::string>& hosts) {
      return jobs_.leaves_open ? host_settings(config_, hosts) : settings_on_hosts(config_, hosts);
    };
    const auto check = [&](std::vector<std::string> changes) {
      for (const auto& setting : settings_to_continue()) changes.push_back(setting);
      job = jobs_.with(changes);
      check_same_samples(config_, job.config);
    };
    const FewerHosts chosen = choose_hosts(answering, settings, check);
    log_ << "continuing without " << host_list(missing) << ", on " << host_list(chosen.hosts)
         << (chosen.why_not_more.empty() ? "" : cat(" (not on more: ", chosen.why_not_more, ")")) << ": "
         << changes_to(job.config) << std::endl;
    return job;
  }

  // "D 4 -> 3, accumulation steps 1 -> 2; the global batch stays 24"
  std::string changes_to(const Config& config) const {
    const Layout was = resolve_sizes(config_, configured_world_size(config_)),
                 is = resolve_sizes(config, configured_world_size(config));
    std::string text;
    const auto add = [&](const char* name, int before, int now) {
      if (before != now) text += cat(text.empty() ? "" : ", ", name, ' ', before, " -> ", now);
    };
    add("D", was.replicas, is.replicas);
    add("P", was.pipeline, is.pipeline);
    add("T", was.tensor, is.tensor);
    add("accumulation steps", was.accumulation_steps, is.accumulation_steps);
    add("samples in a microbatch", was.microbatch_size, is.microbatch_size);
    return cat(text, "; the global batch stays ", is.global_batch());
  }

  static std::vector<std::string> sorted(std::vector<std::string> names) {
    std::ranges::sort(names);
    return names;
  }

  void sleep(std::chrono::milliseconds time) const {
    for (const auto end = Clock::now() + time; Clock::now() < end; std::this_thread::sleep_for(50ms)) end_if_asked();
  }

  bool is_asked_to_stop() const { return stop_requests() > 0 || is_asked_by_file(config_); }

  void end_if_asked() const {
    if (is_asked_to_stop()) end_on_request("before the run started again");
  }

  [[noreturn]] void end_on_request(const char* when) const {
    remove_stop_file(config_);
    const std::string what = cat("stopped on request ", when);
    if (!can_continue()) throw Interrupted(what + "; no checkpoint was saved");
    throw StoppedAfterSaving(
        cat(what, "; it continues from a checkpoint\nto continue:\n  ", resuming_command(source_to_continue())));
  }

  // Whether a run can continue from the checkpoint, provided that it is intact; only the run checks that.
  bool is_usable(const CheckpointPlace& place) const try {
    return !has_optimizer_states(config_.training) || has_states(read_manifest(place.path));
  } catch (const RunError&) {
    return true;
  }

  // After a failure: what is lost, and how to continue.
  std::string how_to_continue() const {
    if (std::filesystem::exists(std::filesystem::path(config_.output_dir) / "config.json")) return "";  // is saved
    const auto places = continues() ? checkpoints_seen(checkpoint_directory(config_)) : std::vector<CheckpointPlace>();
    if (places.empty()) return stop_requests() > 1 ? "no checkpoint was saved\n" : "";
    const std::string newest = cat("the newest checkpoint is ", places.front().path.string());
    const auto usable = std::ranges::find_if(places, [&](const auto& place) { return is_usable(place); });
    if (usable == places.end())
      return newest +
             "; no run can continue from it, because training.save_only_model leaves out the optimizer's state\n";
    const std::string path = usable->path;
    // A host that has only a part of the checkpoint does not know whether others have the rest.
    return cat(newest,
               usable == places.begin() ? "" : cat(" without the optimizer's state; a run can continue from ", path),
               "; the steps after it are lost\nto continue:\n  ",
               resuming_command(checkpoint_of_part(path) ? source_to_continue() : path), '\n');
  }

  const TrainingJobs& jobs_;
  const Config& config_;  // the first attempt's
  std::ostream& log_;
  SavedCheckpoints checkpoints_;
  bool has_saved_ = false, has_trained_ = false;  // in any attempt
  std::vector<std::string> batch_settings_;       // the smaller batch, after memory ran out
};

}  // namespace

int train_on_ranks(const TrainingJobs& jobs, std::ostream& log) {
  count_stop_requests();
  return Attempts(jobs, log).run();
}

}  // namespace shardline
