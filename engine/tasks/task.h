// A task: how rows of data become examples, and how a model's outputs become metrics and predictions.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/config/keys/options.h"
#include "engine/config/keys/task_names.h"
#include "engine/data/dataset/example_source.h"
#include "engine/data/examples/prepare_examples.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "models/families/head_choice.h"

namespace shardline {

// Names without "eval_", with their values.
using MetricValues = std::vector<std::pair<std::string, double>>;

// The predictions of a model for a range of examples.
struct Predicted {
  const Examples& data;
  at::Tensor logits;            // double [examples or their tokens, outputs], in the order of the examples (see Layer)
  std::vector<DataFile> files;  // the files that the examples are made from
  double mean_loss = 0;         // over an evaluation
  std::vector<std::vector<int32_t>> targets =
      {};  // targets that the model writes for the examples, if the task has a TargetRule
};

// How targets are written.
struct TargetRule {
  int64_t most_tokens = 0;
  std::optional<int32_t> end;  // the token after a target
};

class LabelledTask {
 public:
  virtual ~LabelledTask() = default;

  virtual ExampleShape shape() const = 0;
  // Above 0: labelled examples are cut out of the tokens of all rows; see ExampleSetOptions::chunk.
  virtual int64_t chunk() const { return 0; }
  // How the tokens of labelled examples are masked; unset: they are not.
  virtual std::optional<MaskingRule> masking() const { return {}; }
  // Throws DataError for a row without the columns or with a label that the model does not have. labelled: false if the
  // labels are not read, because there may be none. Called by several threads at the same time.
  virtual RowExamples encode(const DataRow& row, bool labelled) const = 0;
  // Everything besides the data that the examples depend on.
  virtual std::string settings() const = 0;
  // Whether metrics() reads what the model predicts; otherwise, Predicted::logits is undefined.
  virtual bool uses_predictions() const { return true; }
  // Whether metrics() reads targets that the model writes, and how.
  virtual std::optional<TargetRule> targets() const { return {}; }
  virtual MetricValues metrics(const Predicted& predicted) const = 0;
  // Calls use(object) for each row that has an example, in order, with what the model predicts for it.
  using UsePrediction = std::function<void(const nlohmann::json& prediction)>;
  virtual void predictions(const Predicted& predicted, const UsePrediction& use) const = 0;
};

// Makes a task. head: the model's head, fully determined.
using TaskFactory =
    std::function<std::unique_ptr<LabelledTask>(const Config&, const HeadChoice& head, const TokenizerPtr&)>;

// Lets a program add a task, which configs then select with `task`; call it before a config is read. A task has one of
// the heads of the model's family. With a head for classes, its labels are those of data.label_column unless
// model.config names them. Throws ConfigError if there is already a task with this name.
void add_task(const std::string& name, TaskTraits traits, TaskFactory make);

// A further metric of a task, one of shardline's or an added one: evaluations have it as "eval_NAME", and
// metric_for_best_model may name it. The logits are undefined if the task's metrics do not read them
// (LabelledTask::uses_predictions). Call it before a config is read. Throws ConfigError if there is no such task, or if
// the task already has a metric with this name.
using Metric = std::function<double(const Predicted&)>;
void add_metric(const std::string& task, const std::string& name, Metric metric);

// Reads the rows of the files again, and calls use(row, first) in order for those that have examples in the data;
// first: the index of the row's first example.
void for_each_predicted_row(const Predicted& predicted, const std::function<void(const DataRow&, int64_t first)>& use);

// The metrics of a task, then those that were added under its name.
MetricValues all_metrics(const std::string& name, const LabelledTask& task, const Predicted& predicted);

// The seed of the masks of evaluations, which are the same in every run.
inline constexpr uint64_t kEvaluationMaskSeed = 0;

// Whether samples are parts of texts without labels, for which there is no LabelledTask.
bool reads_text(const Config& config);

// Returns null if reads_text(config). head: the model's head, fully determined.
std::unique_ptr<LabelledTask> make_task(const Config& config, const HeadChoice& head, const TokenizerPtr& tokenizer);

}  // namespace shardline
