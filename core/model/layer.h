// A layer is the unit that is assigned to a stage, run, recomputed, reduced and priced. The executor runs a stage layer
// by layer and cuts the autograd graph at layer borders, so the backward pass is an explicit loop over layers.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/model/microbatch.h"
#include "core/model/model_spec.h"
#include "core/numbers/half_options.h"

namespace shardline {

class Communicator;
class KvCache;

// A rank's part of a logical parameter: views into flat buffers.
struct Parameter {
  std::string name;  // full name: "h.3.attn.qkv.weight"
  const ParamSpec* spec = nullptr;
  at::Tensor value;  // local_shape of the spec
  at::Tensor grad;   // same shape, at least fp32; ops accumulate into it. Undefined if it is not trained
};

// The tensors that one layer passes to the next, in the order of LayerSpec::output (usually one, [rows, hidden]).
using Border = std::vector<at::Tensor>;

// Weight-gradient products that wait for their BackwardWeight instruction: one queue per microbatch and layer. Ops push
// products in the backward pass; drain() runs them in the order in which they were pushed. If BackwardWeight directly
// follows its BackwardInput, the queue is immediate: a product runs as it is pushed, while its tensors are in cache.
class WeightGradQueue {
 public:
  using AddGradient = std::function<void(const at::Tensor& x, const at::Tensor& dy)>;
  bool immediate = false;

  // The tensors of the product must be x and dy, so that waiting tensors can be counted; `add` must hold none.
  void push(const at::Tensor& x, const at::Tensor& dy, AddGradient add) {
    if (immediate) return add(x, dy);
    waiting_.push_back({x, dy, std::move(add)});
  }
  void drain() {
    for (auto& pair : waiting_) {
      pair.add(pair.x, pair.dy);
      pair = {};  // frees its tensors before the next product runs
    }
    waiting_.clear();
  }
  bool empty() const { return waiting_.empty(); }
  std::vector<at::Tensor> tensors() const {
    std::vector<at::Tensor> tensors;
    for (const auto& pair : waiting_) tensors.insert(tensors.end(), {pair.x, pair.dy});
    return tensors;
  }

 private:
  struct Pair {
    at::Tensor x, dy;
    AddGradient add;
  };
  std::vector<Pair> waiting_;
};

enum class Mode { train, evaluate, generate };

// A sum of losses and its weight (valid tokens, samples, ...). Reports show the total sum divided by the total weight.
struct LossTerm {
  double sum = 0, weight = 0;
};

// A layer's inputs in addition to its border, and where it stores its loss.
struct MicrobatchContext {
  const Microbatch* batch = nullptr;
  Mode mode = Mode::train;
  uint64_t seed = 0;                        // for dropout masks
  int64_t step = 0;                         // optimizer step, a key of dropout masks
  double loss_scale = 1;                    // factor of the loss sum before backward: 1 / weight of the whole step
  double embedding_noise = 0;               // alpha of the noise on embeddings in training; 0: none
  double label_smoothing = 0;               // the part of a label's probability that is spread equally over all words
  WeightGradQueue* weight_grads = nullptr;  // for this microbatch and layer
  KvCache* cache = nullptr;                 // for this layer, in generation
  bool predicts = false;                    // Mode::evaluate returns logits, see Layer
  bool is_memory_bound = false;             // in a dry run that bounds memory: assume the most labelled rows
  bool recompute_attention = false;         // the attention core keeps only its input and is recomputed in backward
  LossTerm loss;                            // set by the last layer
};

class Layer {
 public:
  virtual ~Layer() = default;
  // Computes this rank's part. In Mode::train the last layer returns the scaled loss, a scalar from which backward
  // runs. In Mode::evaluate it stores its loss in the context if the microbatch has labels or targets. It returns
  // nothing or, if context.predicts is set, the logits of the predicting segments or rows in order: [segments, labels]
  // or [rows, labels]; for masked words, it returns the best words (head_best_words in
  // tensor_parallel/ops/cross_entropy.h). In Mode::generate it returns the logits of the last position, [batch,
  // vocabulary]. Logits are at least fp32 and complete on every T rank.
  virtual Border forward(const Border& input, MicrobatchContext& context) = 0;
};

// What a factory needs to build a rank's part of a layer.
struct LayerBuild {
  const LayerSpec* spec = nullptr;
  std::vector<Parameter*> params;  // in the order of spec->params; outlive the layer
  Communicator* tp = nullptr;      // the T ranks
  bool sequence_parallel = false;  // optimize: memory
  int64_t index = 0;               // the layer's index in the model; a key of dropout masks
  HalfOptions half;
};

// The owner of the parameters, as seen by the executor. Layers are numbered as in the ModelSpec. All ranks that share a
// layer must make these calls in the same order.
class ParameterStore {
 public:
  virtual ~ParameterStore() = default;
  // The layers that will be acquired until the end of the run, in this order, so that they can be prefetched.
  virtual void begin_run(std::vector<int> acquired) = 0;
  virtual void acquire(int layer) = 0;  // values must be complete from this call (forward, input gradient) ...
  virtual void release(int layer) = 0;  // ... to this one
  // Between these calls, microbatches add to gradients: to those that wait for BackwardWeight (ParamSpec::deferred) or
  // to the others. Open gradients may be opened again. `last`: nothing more is added in this step.
  virtual void open_gradients(int layer, bool deferred) = 0;
  virtual void close_gradients(int layer, bool deferred, bool last) = 0;
  virtual void settle_gradients() = 0;  // waits for the reductions of all microbatches closed so far
};

// The rows of a microbatch that rank t of T holds at a border: all tokens, or rows t*c to (t+1)*c with c =
// ceil(tokens/T) under sequence parallelism, where the last rows may be padding.
int64_t border_rows(int64_t tokens, int t_degree, bool sequence_parallel);
std::vector<int64_t> bind_shape(const BorderTensor& tensor, int64_t rows);

}  // namespace shardline
