// Records of a training run that rank 0 makes: lines on the console, metrics.jsonl, TensorBoard events. The other ranks
// record nothing.
//
// A record that cannot be written (for example because the disk is full) does not end the run, because the model is
// worth more. The console reports the first failure, or each if they are rare; later records are still attempted, and
// at the end `gaps` lists what is missing.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/long_work.h"
#include "engine/config/rules/run_steps.h"
#include "engine/observe/metrics_log.h"
#include "engine/observe/progress.h"
#include "engine/observe/tensorboard.h"
#include "engine/run/ranks.h"

namespace shardline {

class RunRecords {
 public:
  RunRecords(const Config& config, const RankContext& context, const RunSteps& run);

  // Creates or continues the files. Throws RunError if it cannot. Call it before there are steps or evaluations.
  void open(const Config& config);
  void step(const StepMetrics& metrics);
  void evaluation(const EvaluationMetrics& metrics);
  // Syncs everything that was recorded before the call to the disk; throws RunError if it cannot. Another thread may
  // call it while records are made, and after the end of this object, which does not wait for a slow disk.
  std::function<void()> sync_function() const;
  void note(const std::string& text);  // a line on the console
  // Calls `write`, which makes another record. An exception counts as a gap in `what`.
  enum class Shown { first, each };  // which failures are shown on the console
  void attempt(const std::string& what, const std::function<void()>& write, Shown shown = Shown::first);

  // Shows the progress of work that takes longer than two seconds; empty on the other ranks.
  LongWork::Show show(const std::string& text);
  void finish();  // ends the line that is being overwritten

  // Why the model is unusable, as far as the steps show; empty if it is not.
  std::string warning() const;
  // "metrics.jsonl: 3 could not be written, first: <reason>"; empty without gaps.
  std::string gaps() const;

 private:
  struct Gap {
    int64_t records = 0;
    std::string first_reason;
  };

  int64_t total_steps_, steps_ = 0, skipped_ = 0;
  double last_loss_ = 0;
  std::optional<Progress> progress_;
  std::unique_ptr<MetricsLog> log_;
  std::unique_ptr<TensorBoardWriter> tensorboard_;
  std::shared_ptr<std::vector<std::string>> files_ = std::make_shared<std::vector<std::string>>();  // shared by both
  std::map<std::string, Gap> gaps_;  // by what is missing
};

}  // namespace shardline
