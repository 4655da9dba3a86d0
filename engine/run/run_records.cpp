#include "engine/run/run_records.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/comm/clock.h"
#include "core/error.h"
#include "core/files/disk_file.h"

namespace shardline {
namespace {

constexpr double kMoment = 2;  // seconds

Progress::LoggedSteps printed_steps(const TrainingOptions& training, const RunSteps& run) {
  const bool by_epochs = training.logging_strategy == LoggingStrategy::epoch;
  const int64_t every = by_epochs ? run.per_epoch : logging_steps(training, run);
  return {.every = training.logging_strategy == LoggingStrategy::no ? 0 : every,
          .first = training.logging_first_step,
          .last = by_epochs};
}

}  // namespace

RunRecords::RunRecords(const Config& config, const RankContext& context, const RunSteps& run)
    : total_steps_(run.total) {
  if (!context.out) return;
  progress_.emplace(*context.out, context.console, printed_steps(config.training, run));
}

void RunRecords::open(const Config& config) {
  if (!progress_) return;
  log_ = std::make_unique<MetricsLog>(config.output_dir + "/metrics.jsonl");
  files_->push_back(log_->path());
  const auto& to = config.training.report_to;
  if (std::ranges::find(to, Tracker::tensorboard) == to.end()) return;
  tensorboard_ = std::make_unique<TensorBoardWriter>(config.output_dir);
  files_->push_back(tensorboard_->path());
}

void RunRecords::step(const StepMetrics& metrics) {
  if (!progress_) return;
  ++steps_;
  skipped_ += metrics.loss_scale && metrics.loss_scale->overflowed;
  last_loss_ = metrics.loss;
  attempt("metrics.jsonl", [&] { log_->add(metrics); });
  if (tensorboard_) attempt("TensorBoard events", [&] { tensorboard_->add(metrics); });
  progress_->add(metrics, total_steps_);
}

void RunRecords::evaluation(const EvaluationMetrics& metrics) {
  if (!progress_) return;
  attempt("metrics.jsonl", [&] { log_->add(metrics); });
  if (tensorboard_) attempt("TensorBoard events", [&] { tensorboard_->add(metrics); });
  progress_->add(metrics);
}

std::function<void()> RunRecords::sync_function() const {
  return [files = files_] {
    for (const auto& file : *files) sync_file(file);
    if (!files->empty())
      sync_directory(std::filesystem::path(files->front()).parent_path());  // makes their names durable
  };
}

void RunRecords::note(const std::string& text) {
  if (progress_) progress_->line(text);
}

void RunRecords::attempt(const std::string& what, const std::function<void()>& write, Shown shown) {
  try {
    write();
  } catch (const std::exception& error) {
    Gap& gap = gaps_[what];
    const bool is_first = gap.records++ == 0;
    if (is_first) gap.first_reason = error.what();
    if (progress_ && (is_first || shown == Shown::each))
      progress_->line(cat("warning: ", what, ": ", error.what(), "; the run continues"));
  }
}

LongWork::Show RunRecords::show(const std::string& text) {
  if (!progress_) return {};
  return [this, text, start = steady_seconds()](int64_t done, int64_t total) {
    if (steady_seconds() - start > kMoment) progress_->update(done, total, text);
  };
}

void RunRecords::finish() {
  if (progress_) progress_->finish();
}

std::string RunRecords::warning() const {
  if (skipped_ > 0 && skipped_ == steps_)
    return cat("gradients overflowed in each of the ", steps_,
               " steps, so nothing was trained; train longer, or start with a smaller loss scale "
               "(training.dynamic_loss_args.init_scale)");
  if (!std::isfinite(last_loss_))
    return cat("the loss of the last step is ", last_loss_,
               ", so the model is unusable; try a smaller training.learning_rate");
  return "";
}

std::string RunRecords::gaps() const {
  std::string text;
  for (const auto& [what, gap] : gaps_)
    text += cat(text.empty() ? "" : "; ", what, ": ", gap.records, " could not be written, first: ", gap.first_reason);
  return text;
}

}  // namespace shardline
