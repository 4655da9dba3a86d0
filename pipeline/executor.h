// Runs a stage's instruction list. A chunk runs layer by layer, and autograd's graph is cut at every layer border: the
// input is detached and requires a gradient, the output is kept. So backward is an explicit loop over layers.
#pragma once
#include <ATen/core/Tensor.h>

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "core/communicator.h"
#include "core/layer.h"
#include "pipeline/instruction_records.h"
#include "pipeline/schedule.h"

namespace shardline {

// The layers of one rank's stage, and how they hang together with the other stages.
struct StageLayers {
  const ModelSpec* spec = nullptr;
  std::vector<std::vector<int>> layers_of_chunk;  // by chunk of the schedule: ascending layers of the model
  std::vector<std::unique_ptr<Layer>> layers;     // by layer of the model; null on other stages
  int t_degree = 1;
  bool sequence_parallel = false;
  at::TensorOptions activations;  // dtype and device at borders
};

struct RunSettings {
  Mode mode = Mode::train;
  uint64_t seed = 0;
  int64_t step = 0;
  double loss_scale = 1;
  // Generation: the cache of each layer of the model; empty otherwise.
  std::vector<KvCache*> caches;
};

struct RunResult {
  std::vector<LossTerm> losses;  // by microbatch; only on the last stage
  std::vector<at::Tensor>
      outputs;  // by microbatch: what the last layer returned in Mode::generate; only on the last stage
  std::vector<InstructionRecord> records;  // in the order of the list
};

class Executor {
 public:
  // pp: the stages of this rank's pipeline, rank = stage.
  Executor(StageLayers& stage, Communicator& pp, ParameterStore& parameters);

  // Runs `schedule`'s list for this stage over `microbatches` (they must outlive the call).
  RunResult run(const Schedule& schedule, const std::vector<Microbatch>& microbatches, const RunSettings& settings);

 private:
  // What one layer keeps of one microbatch between forward and backward.
  struct Kept {
    Border input, output;
    WeightGradQueue weight_grads;
  };
  struct Key {
    int microbatch, chunk;
    auto operator<=>(const Key&) const = default;
  };

  void forward(Key at);
  void backward_input(Key at, bool drain);
  void backward_weight(Key at);
  void finish_layer(Key at, int layer);
  void send(const Border& border, const Instruction& instruction);
  Border receive(const Instruction& instruction, int border_of_chunk);

  StageLayers& stage_;
  Communicator& pp_;
  ParameterStore& parameters_;

  // Of the run in progress.
  const Schedule* schedule_ = nullptr;
  const std::vector<Microbatch>* microbatches_ = nullptr;
  RunSettings settings_;
  RunResult result_;
  std::map<Key, Border> activations_;     // at the start of (microbatch, chunk)
  std::map<Key, Border> gradients_;       // at the end of (microbatch, chunk)
  std::map<Key, std::deque<Kept>> kept_;  // by layer of the chunk; a deque, because ops point into it
  std::vector<std::pair<WorkPtr, Border>> sends_;
};

}  // namespace shardline
