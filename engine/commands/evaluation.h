// Evaluates a model on a job's validation data.
#pragma once
#include "engine/commands/open_data.h"
#include "engine/observe/metrics.h"
#include "engine/train/trainer.h"

namespace shardline {

struct Evaluation {
  LossTerm loss;
  EvaluationMetrics metrics;  // of language models loss and perplexity, of tasks with labels loss and their metrics
};

// One pass over data.validation, equal on every rank. Collective over the world. Metrics of tasks with labels are
// computed on the first rank.
Evaluation evaluate(Trainer& trainer, const JobData& data, Communicator& world, int64_t step, double epoch);

}  // namespace shardline
