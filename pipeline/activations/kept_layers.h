// What the layers of a stage keep of its microbatches between forward and backward: counted in bytes while a run goes
// on, and outside the device for a while where activations are offloaded.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/model/layer.h"
#include "pipeline/activations/activation_bytes.h"
#include "pipeline/activations/kept_storages.h"
#include "pipeline/activations/offload.h"
#include "pipeline/schedule/schedule.h"

namespace shardline {

// One microbatch on one chunk.
struct Pass {
  int microbatch, chunk;
  auto operator<=>(const Pass&) const = default;
};

// What one layer keeps of one microbatch. Whoever changes it calls KeptLayers::count.
struct KeptLayer {
  Border input;
  std::vector<torch::autograd::Edge> gradients;  // of the output, which itself is not kept
  WeightGradQueue weight_grads;
  int64_t bytes = 0;               // of all that, as it was counted last
  std::unique_ptr<MovedOut> away;  // input and what the graph has saved, where they moved out

  std::vector<KeptStorage> storages() const;
};

class KeptLayers {
 public:
  // directory: for offloading on CPUs. Throws ConfigError where it cannot be written to.
  KeptLayers(const OffloadOptions& options, at::Device device, const std::string& directory);

  // A run of this list begins; nothing is kept of the last one.
  void begin_run(const std::vector<Instruction>& list);

  // One per layer of the chunk. They stay where they are until drop(), because ops point into them.
  std::vector<KeptLayer>& add(const Pass& pass, size_t layers);
  std::vector<KeptLayer>& of(const Pass& pass) { return kept_.at(pass); }
  void drop(const Pass& pass) { kept_.erase(pass); }
  bool empty() const { return kept_.empty(); }

  void count(KeptLayer& kept);  // what is kept has changed
  int64_t live_bytes() const { return live_.now(); }
  int64_t peak_bytes() const { return live_.peak(); }

  // Whether what instruction `place` of the list, the forward of `pass`, makes is used late enough to move out.
  bool moves_out(const Pass& pass, size_t place) const;
  void move_out(KeptLayer& kept);
  // Starts to fetch what must be back `horizon` instructions after instruction `place`.
  void fetch_ahead(const std::vector<Instruction>& list, size_t place);
  void bring_back(KeptLayer& kept);  // waits for that

 private:
  OffloadOptions options_;
  std::unique_ptr<OffloadSpace> offload_;              // null where nothing moves out
  std::map<std::pair<int, int>, size_t> backward_of_;  // places in the list below, where things move out
  std::vector<Instruction> list_of_backward_;
  std::map<Pass, std::vector<KeptLayer>> kept_;
  LiveBytes live_;
};

}  // namespace shardline
