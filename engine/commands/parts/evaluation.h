// What a job does with a model besides training it: evaluates it on validation data, predicts for other data.
#pragma once
#include "engine/commands/parts/open_data.h"
#include "engine/observe/metrics.h"
#include "engine/train/trainer.h"

namespace shardline {

struct Evaluation {
  LossTerm loss;
  EvaluationMetrics metrics;  // language models: loss and perplexity; tasks with labels: loss and the task's metrics
};

// One pass over data.validation, equal on every rank. Collective over the world. Metrics of tasks with labels are
// computed on the first rank.
Evaluation evaluate(RankTrainer& trainer, const JobData& data, Communicator& world, int64_t step, double epoch);

// Writes what the model predicts for each row, in the order of the data, one JSON object per line. Collective over the
// world.
void write_predictions(RankTrainer& trainer, const PredictedData& data, const std::string& file, RankContext& context);

}  // namespace shardline
