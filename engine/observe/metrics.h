// The record of a finished optimizer step and of an evaluation, from which metrics.jsonl, the TensorBoard events and
// the console line are made.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardline {

// Memory of the rank's accelerator, or of its process on CPUs; if ranks are threads, each has the totals of all.
struct RankMemory {
  int64_t counted = 0;   // bytes: peak of all tensors (weights, gradients, states, activations, workspace)
  int64_t resident = 0;  // bytes: peak of the process, including pages of files, or of the accelerator's allocator
};

// Set for fp16.
struct LossScale {
  double scale = 1;         // in this step
  bool overflowed = false;  // a gradient was infinite or NaN: the step changed nothing
};

struct StepMetrics {
  int64_t step = 0;          // counted from 1
  double epoch = 0;          // epochs finished after this step, with a fraction
  double loss = 0;           // for this step's batch, before the update
  double grad_norm = 0;      // before clipping
  double learning_rate = 0;  // used by this update
  std::optional<LossScale> loss_scale;
  int64_t tokens = 0;  // in the global batch
  double step_seconds = 0;
  double tokens_per_second = 0;
  double samples_per_second = 0;
  double bubble_fraction = 0;                 // 1 - busy / (P x time between optimizer barriers)
  double exposed_communication_fraction = 0;  // share of the ranks' time in collectives that no computation hid
  std::vector<RankMemory> peak_memory_bytes;  // by rank
};

struct EvaluationMetrics {
  int64_t step = 0;
  double epoch = 0;
  std::vector<std::pair<std::string, double>> values;  // names begin with eval_: eval_loss first
};

// The resident bytes of the rank that has the most.
int64_t largest_resident(const StepMetrics& metrics);

}  // namespace shardline
