// Runs a stage's instruction list. A chunk runs layer by layer, and autograd's graph is cut at every layer border: the
// input is detached and requires a gradient, and the output is kept. So the backward pass is an explicit loop over
// layers, and these borders determine what is kept, recomputed or offloaded.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/model/layer.h"
#include "pipeline/activations/activation_bytes.h"
#include "pipeline/activations/kept_layers.h"
#include "pipeline/run/messages.h"
#include "pipeline/run/run_recorder.h"
#include "pipeline/schedule/instruction_records.h"
#include "pipeline/schedule/schedule.h"

namespace shardline {

// The layers of one rank's stage, and their connections to the other stages.
struct StageLayers {
  const ModelSpec* spec = nullptr;
  std::vector<std::vector<int>> layers_of_chunk;  // by chunk of the schedule: its layers in the model, ascending
  std::vector<std::unique_ptr<Layer>> layers;     // by layer of the model; null on other stages
  int t_degree = 1;
  bool sequence_parallel = false;
  at::TensorOptions activations;  // dtype and device at borders
  ActivationChoices choices;      // for training; the last layer of the model is never recomputed
  std::string offload_directory;  // for offloading on CPUs
  bool waits_for_device = false;  // after each instruction, so that accelerators finish it before its record ends
};

struct RunSettings {
  Mode mode = Mode::train;
  uint64_t seed = 0;
  int64_t step = 0;
  double loss_scale = 1, label_smoothing = 0, embedding_noise = 0;
  bool predicts = false;  // MicrobatchContext::predicts
  // For generation: the cache of each layer of the model; empty otherwise.
  std::vector<KvCache*> caches;
};

struct RunResult {
  std::vector<LossTerm> losses;  // by microbatch; on the last stage only
  // By microbatch: the logits that the last layer returned in Mode::generate, or because `predicts` was set; on the
  // last stage only.
  std::vector<at::Tensor> outputs;
  int64_t peak_activation_bytes = 0;  // the value that peak_activation_bytes() predicts
};

class Executor {
 public:
  // pp: the stages of this rank's pipeline, rank = stage.
  Executor(StageLayers& stage, Communicator& pp, ParameterStore& parameters);

  // Runs the schedule's list for this stage on `microbatches`, which must outlive the call.
  RunResult run(const Schedule& schedule, const std::vector<Microbatch>& microbatches, const RunSettings& settings);

  // Returns the records of the last run in list order, only once. On accelerators, waits for the end of the run.
  std::vector<InstructionRecord> take_records() { return recorder_.take(); }

 private:
  void execute(const Instruction& instruction, bool drain);
  void forward(const Pass& pass);
  void backward_input(const Pass& pass, bool drain);
  void backward_weight(const Pass& pass);
  MicrobatchContext context_of(const Pass& pass) const;
  const std::vector<int>& layers_of(const Pass& pass) const;
  Border run_layer(int layer, const Border& input, MicrobatchContext& context);
  Border keep_layer(int layer, const Border& input, KeptLayer& kept, MicrobatchContext& context);
  Border layer_backward(int layer, KeptLayer& kept, const Border& d_output, bool drain);
  void recompute(const Pass& pass, const LayerGroup& group, std::vector<KeptLayer>& kept);
  bool is_last(const Pass& pass) const;
  void open_gradients(int layer, bool drain);
  void close_gradients(const Pass& pass, int layer, bool drain);
  void bring_back(KeptLayer& kept);
  Border receive(const Instruction& instruction);
  std::vector<std::vector<int64_t>> shapes(const Instruction& receive) const;

  StageLayers& stage_;
  ParameterStore& parameters_;
  Messages messages_;
  KeptLayers kept_;
  RunRecorder recorder_;
  std::vector<std::vector<LayerGroup>> groups_of_chunk_;
  std::map<Mode, std::vector<int64_t>> last_tokens_;  // in the last run of each mode, by microbatch

  // State of the run in progress.
  const Schedule* schedule_ = nullptr;
  const std::vector<Microbatch>* microbatches_ = nullptr;
  RunSettings settings_;
  RunResult result_;
  size_t place_ = 0;                    // index of the current instruction in the list
  std::map<Pass, Border> activations_;  // at the start of the pass
  std::map<Pass, Border> gradients_;    // at the end of the pass
};

}  // namespace shardline
