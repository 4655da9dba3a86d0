// What the layers of a stage keep for its microbatches between forward and backward, with a count of its bytes at run
// time. With offloading, parts of it are temporarily not on the device.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/model/layer.h"
#include "pipeline/activations/activation_bytes.h"
#include "pipeline/activations/moved_out.h"
#include "pipeline/activations/offload.h"
#include "pipeline/schedule/schedule.h"

namespace shardline {

// The pass of one microbatch through one chunk.
struct Pass {
  int microbatch, chunk;
  auto operator<=>(const Pass&) const = default;
};

// What one layer keeps for one microbatch. Call KeptLayers::count after changing it.
struct KeptLayer {
  Border input;
  std::vector<torch::autograd::Edge> gradients;  // the output's edges; the output itself is not kept
  WeightGradQueue weight_grads;
  int64_t bytes = 0;               // size of all of the above, when last counted
  std::unique_ptr<MovedOut> away;  // input and tensors saved in the graph, if they were offloaded

  std::vector<KeptStorage> storages() const;
};

class KeptLayers {
 public:
  // directory: for offloading on CPUs. Throws ConfigError if it is not writable.
  KeptLayers(const OffloadOptions& options, at::Device device, const std::string& directory);

  // Begins a run of this list; nothing may be left from the previous run.
  void begin_run(const std::vector<Instruction>& list);
  void end_run();

  // Adds one entry for each layer of the chunk. The entries stay in place until drop(), because ops point to them.
  std::vector<KeptLayer>& add(const Pass& pass, size_t layers);
  std::vector<KeptLayer>& of(const Pass& pass) { return kept_.at(pass); }
  void drop(const Pass& pass) { kept_.erase(pass); }
  bool empty() const { return kept_.empty(); }

  void count(KeptLayer& kept);  // updates the count after a change
  int64_t live_bytes() const { return live_.now(); }
  int64_t peak_bytes() const { return live_.peak(); }

  // Whether the result of the forward of `pass`, at index `place` of the list, is used late enough to be offloaded.
  bool moves_out(const Pass& pass, size_t place) const;
  void move_out(KeptLayer& kept);
  // Starts to fetch everything that must be back `horizon` instructions after index `place`.
  void fetch_ahead(const std::vector<Instruction>& list, size_t place);
  void bring_back(KeptLayer& kept);  // waits for the fetch

 private:
  OffloadOptions options_;
  std::unique_ptr<OffloadSpace> offload_;              // null if nothing is offloaded
  std::map<std::pair<int, int>, size_t> backward_of_;  // indexes in the list below; filled only with offloading
  std::vector<Instruction> list_of_backward_;
  std::map<Pass, std::vector<KeptLayer>> kept_;
  LiveBytes live_;
  int64_t leaving_bytes_ = 0;  // part of live_: bytes of tensors being moved out, OffloadSpace::leaving_bytes
};

}  // namespace shardline
