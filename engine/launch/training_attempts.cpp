#include "engine/launch/training_attempts.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <ostream>
#include <set>
#include <sstream>
#include <thread>
#include <tuple>

#include "core/error.h"
#include "engine/checkpoint/checkpoint_directory.h"
#include "engine/checkpoint/manifest.h"
#include "engine/config/rules/saving_rules.h"
#include "engine/config/rules/shell_words.h"
#include "engine/config/rules/sizes.h"
#include "engine/launch/fewer_hosts.h"
#include "engine/launch/restarts.h"
#include "engine/launch/start_ranks.h"
#include "engine/run/output_dir.h"
#include "engine/run/output_lock.h"

namespace shardline {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPause = 5s;  // between two questions to hosts that do not answer

// Tells checkpoints that this job has saved from those that were there before.
class SavedCheckpoints {
 public:
  explicit SavedCheckpoints(std::string directory) : directory_(std::move(directory)) { has_new(); }

  // Whether checkpoints have appeared since the last call.
  bool has_new() {
    std::set<Identity> now;
    for (const auto& place : checkpoints_in(directory_)) {
      struct stat status = {};
      if (::stat((place.path / kManifestFile).c_str(), &status) == 0)
        now.insert({place.step, status.st_ino, status.st_mtim.tv_sec, status.st_mtim.tv_nsec});
    }
    const bool has_more = !std::ranges::includes(seen_, now);
    seen_ = std::move(now);
    return has_more;
  }

  // The newest one as far as this host knows; empty if there is none. is_part: other hosts have the rest of it, or not.
  struct Newest {
    std::string path;
    bool is_part = false;
  };
  Newest newest() const {
    const auto places = checkpoints_in(directory_);
    if (places.empty()) return {};
    const std::string path = places.front().path;
    const auto whole = checkpoint_of_part(path);
    return {whole.value_or(path), whole.has_value()};
  }

 private:
  using Identity = std::tuple<int64_t, ino_t, time_t, long>;
  std::string directory_;
  std::set<Identity> seen_;
};

std::string lines_without_prefix(const std::string& failure) {
  std::istringstream lines(failure);
  std::string text;
  for (std::string line; std::getline(lines, line);)
    text += cat("  ", line.starts_with("error: ") ? line.substr(7) : line, '\n');
  return text;
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
      const bool saved = checkpoints_.has_new();
      has_saved_ = has_saved_ || saved;
      const bool again = restarts.again_after(
          {.exit_code = end.exit_code, .asked_to_stop = is_asked_to_stop(), .saved_something = saved});
      if (!again) {
        if (!restarts.reason().empty()) log_ << restarts.reason() << '\n';
        log_ << end.failure << std::flush;
        return exit_code_of_program(end);
      }
      log_ << "attempt " << restarts.attempts() << " failed:\n" << lines_without_prefix(end.failure) << std::flush;
      wait_for_output_dir();
      job = next_job();
      const auto from = continues() ? checkpoints_.newest() : SavedCheckpoints::Newest{};
      log_ << "attempt " << restarts.attempts() + 1 << " of at most " << config_.mpi.max_restarts + 1
           << (from.path.empty() ? " starts as the first one did: no checkpoint was saved" : " continues " + from.path)
           << (from.is_part ? ", if the hosts have all parts of it" : "") << std::endl;
    }
  }

 private:
  bool continues() const {
    const auto source = resume_source(config_.training).kind;
    return has_saved_ || source == ResumeSource::Kind::newest || source == ResumeSource::Kind::newest_or_fresh;
  }

  // Until this job has saved a checkpoint, those in the directory may be of another run, which it replaces.
  std::vector<std::string> settings_to_continue() const {
    const bool fresh = resume_source(config_.training).kind == ResumeSource::Kind::fresh;
    if (has_saved_ || (fresh && !config_.training.overwrite_output_dir))
      return {"training.resume_from_checkpoint=auto"};
    return {};
  }

  // A rank that cannot be reached may have it until it ends itself.
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
    auto hosts = hosts_of(config_);
    if (hosts.size() > static_cast<size_t>(used_hosts(config_))) hosts.resize(used_hosts(config_));
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
      if (!said) log_ << "waits until these hosts answer: " << host_list(missing) << obstacle << std::endl;
      said = true;
    }
  }

  TrainingJob job_without(const std::vector<std::string>& missing, const std::vector<std::string>& answering) const {
    TrainingJob job;
    const auto settings = [&](const std::vector<std::string>& hosts) {
      return jobs_.leaves_open ? host_settings(config_, hosts) : settings_on_hosts(config_, hosts);
    };
    const auto check = [&](std::vector<std::string> changes) {
      for (const auto& setting : settings_to_continue()) changes.push_back(setting);
      job = jobs_.with(changes);
    };
    const FewerHosts chosen = choose_hosts(answering, settings, check);
    log_ << "goes on without " << host_list(missing) << ", on " << host_list(chosen.hosts)
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
    if (!is_asked_to_stop()) return;
    remove_stop_file(config_);
    const std::string what = "stopped on request before the run started again";
    const std::string newest = continues() ? checkpoints_.newest().path : "";
    if (newest.empty()) throw Interrupted(what + "; no checkpoint was saved");
    std::string command = "shardline";
    for (const auto& word : jobs_.first.arguments) command += " " + shell_quoted(word);
    throw StoppedAfterSaving(cat(what, "; the newest checkpoint is ", newest, "\nto continue:\n  ", command, " --set ",
                                 shell_quoted("training.resume_from_checkpoint=" + newest)));
  }

  const TrainingJobs& jobs_;
  const Config& config_;  // of the first attempt
  std::ostream& log_;
  SavedCheckpoints checkpoints_;
  bool has_saved_ = false;
};

}  // namespace

int train_on_ranks(const TrainingJobs& jobs, std::ostream& log) {
  count_stop_requests();
  return Attempts(jobs, log).run();
}

}  // namespace shardline
