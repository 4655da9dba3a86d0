// The training and validation data of a job: checks before anything is read, and sources that read the token caches,
// which the ranks of a host share.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "engine/commands/parts/job_parts.h"
#include "engine/config/keys/options.h"
#include "engine/data/dataset/batch_source.h"
#include "engine/run/ranks.h"
#include "engine/tasks/task.h"

namespace shardline {

// Checks the tokenizer, the data files and, if the files contain token ids, the length of the run, without reading any
// text except for the first row of tables. Throws ConfigError or DataError. must_be_there: a missing file is an error.
void check_data(const Config& config, const PlannedModel& planned, bool must_be_there);
// The same for the validation data alone.
void check_validation_data(const Config& config, const PlannedModel& planned);

// Steps of the run. Throws ConfigError if the learning-rate schedule does not fit into them.
int64_t count_steps(const Config& config, int64_t steps_per_epoch);

struct EvaluatedExamples {
  std::string suffix;  // added to the metrics' names
  Examples examples;
  std::vector<DataFile> files;
};
struct JobData {
  std::unique_ptr<EpochSource> train, validation, mismatched;  // null if the job has no such data
  std::unique_ptr<LabelledTask> task;                          // null for text
  std::string task_name;
  std::vector<int64_t> label_counts;  // counted in the training data; empty: the task has no classes
  // From these, a task computes the metrics of the validation data and of the mismatched set.
  std::vector<EvaluatedExamples> evaluated;
};
// Collective over the world: the first rank of each host creates the caches, which may take long, and the others open
// them.
JobData open_data(const Config& config, const ModelSource& model, const Layout& layout, RankContext& context,
                  bool with_train);

// The tokenizer of a task with labels or of prompts. Throws ConfigError if there is none or if it does not fit the
// model; null if samples are tensors and the config names no tokenizer.
TokenizerPtr tokenizer_of_task(const Config& config, const ModelSpec& spec);

// The rows for which `predict` wants predictions.
struct PredictedData {
  std::unique_ptr<LabelledTask> task;
  std::vector<DataFile> files;
  Examples examples;  // all rows, without labels
  std::unique_ptr<EpochSource> source;
};
// Throws ConfigError if the config names no data to predict for (data.test, or else data.validation), or has a task
// without predictions.
void require_predicted_data(const Config& config);
void check_predicted_data(const Config& config, const PlannedModel& planned, bool must_be_there);
// Where predictions are written unless the command line names a file.
std::string predictions_file(const Config& config);
// Collective over the world.
PredictedData open_predicted_data(const Config& config, const ModelSource& model, const Layout& layout,
                                  RankContext& context);

}  // namespace shardline
