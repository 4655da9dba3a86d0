#include "models/graph/dry_run.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "core/comm/communicator_base.h"
#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/memory/kept_storage.h"
#include "core/memory/meta_bytes.h"
#include "core/model/backward.h"
#include "core/model/layer.h"
#include "core/model/work_notes.h"

namespace shardline {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;

// One of T ranks, without the others: every operation succeeds immediately and transfers nothing.
class DryCommunicator : public Communicator {
 public:
  DryCommunicator(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& name() const override { return name_; }
  WorkPtr all_reduce(const at::Tensor&, const CommOptions&) override { return finished_work(); }
  WorkPtr reduce_scatter(const at::Tensor&, const at::Tensor&, const CommOptions&) override { return finished_work(); }
  WorkPtr all_gather(const at::Tensor&, const at::Tensor&, const CommOptions&) override { return finished_work(); }
  WorkPtr all_to_all(const at::Tensor&, const at::Tensor&, const CommOptions&) override { return finished_work(); }
  WorkPtr broadcast(const at::Tensor&, int, const CommOptions&) override { return finished_work(); }
  WorkPtr send(const at::Tensor&, int, const CommOptions&) override { return finished_work(); }
  WorkPtr recv(const at::Tensor&, int, const CommOptions&) override { return finished_work(); }
  void barrier(const CommOptions&) override {}
  std::shared_ptr<Communicator> split(int, const std::string&) override {
    SL_ASSERT(false, "a layer must not split its group");
  }
  void abort(const std::string&) override {}

 private:
  int rank_, size_;
  std::string name_ = "dry run";
};

// One microbatch on one rank.
struct DryCase {
  int64_t sequences = 1, length = 1;
  int t = 0, t_degree = 1;
  bool sequence_parallel = false;
  int64_t element_bytes = 4, border_bytes = 4;
  bool recompute_attention = false, attention_in_fp32 = false;
  bool is_memory_bound = false;  // see MicrobatchContext
};

at::ScalarType type_of(int64_t bytes) {
  SL_ASSERT(bytes == 2 || bytes == 4 || bytes == 8, "numbers of ", bytes, " bytes");
  return bytes == 2 ? at::kBFloat16 : bytes == 4 ? at::kFloat : at::kDouble;
}

std::vector<Node*> newest_first(const std::vector<Edge>& outputs) {
  std::vector<Node*> nodes;
  const auto see = [&](const Edge& edge) {
    if (edge.is_valid() && std::find(nodes.begin(), nodes.end(), edge.function.get()) == nodes.end())
      nodes.push_back(edge.function.get());
  };
  for (const auto& edge : outputs) see(edge);
  for (size_t i = 0; i < nodes.size(); ++i)
    for (const auto& next : nodes[i]->next_edges()) see(next);
  std::sort(nodes.begin(), nodes.end(),
            [](const Node* a, const Node* b) { return a->sequence_nr() > b->sequence_nr(); });
  return nodes;
}

// Accumulates the gradients of one tensor as autograd does: in place if nothing else holds the first one.
void add_gradient(at::Tensor& sum, at::Tensor gradient) {
  if (!gradient.defined()) return;
  if (!sum.defined()) {
    sum = std::move(gradient);
    return;
  }
  note_sweep(sum.numel(), 3);
  const bool in_place = sum.use_count() == 1 && sum.storage().use_count() == 1;
  if (!in_place) sum = at::empty_like(sum);
}

// Runs the graph of `outputs` backward to its leaves, in the order of autograd's engine: newest node first. The engine
// itself cannot be used because it never accumulates meta tensors in place.
void run_backward(const std::vector<Edge>& outputs, const Border& d_output) {
  const at::NoGradGuard no_grad;
  std::map<const Node*, Border> gradients;
  const auto add = [&](const Edge& to, at::Tensor gradient) {
    if (!to.is_valid()) return;
    Border& of_node = gradients[to.function.get()];
    of_node.resize(to.function->num_inputs());
    add_gradient(of_node[to.input_nr], std::move(gradient));
  };
  for (size_t i = 0; i < outputs.size(); ++i) add(outputs[i], d_output[i]);
  for (Node* node : newest_first(outputs)) {
    if (dynamic_cast<const torch::autograd::AccumulateGrad*>(node)) continue;  // accumulates into a leaf
    Border made = (*node)(std::move(gradients[node]));
    gradients.erase(node);
    for (size_t i = 0; i < made.size(); ++i) add(node->next_edge(i), std::move(made[i]));
  }
}

// A layer's local part on meta tensors, and one microbatch that passes through it.
class DryLayer {
 public:
  DryLayer(const LayerSpec& spec, const std::vector<BorderTensor>& input, const DryCase& at)
      : spec_(spec),
        case_(at),
        comm_(at.t, at.t_degree),
        batch_(causal_microbatch(at::empty({at.sequences, at.length}, at::TensorOptions(at::kMeta).dtype(at::kLong)),
                                 {}, at::empty({at.sequences}, at::TensorOptions(at::kMeta).dtype(at::kLong)))) {
    for (const auto& param : spec.params) {
      const auto shape = param.local_shape(at.t, at.t_degree);
      params_.push_back({.name = spec.full_name(param), .spec = &param, .value = empty(shape, at.element_bytes)});
      if (param.trainable) params_.back().grad = empty(shape, std::max<int64_t>(4, at.element_bytes));
    }
    LayerBuild build{.spec = &spec, .tp = &comm_, .sequence_parallel = at.sequence_parallel};
    for (auto& param : params_) build.params.push_back(&param);
    if (at.border_bytes != at.element_bytes) build.half.border = type_of(at.border_bytes);
    build.half.attention_in_fp32 = at.attention_in_fp32;
    layer_ = spec.build(build);
    const int64_t rows = border_rows(batch_.tokens(), at.t_degree, at.sequence_parallel);
    for (const auto& tensor : input)
      input_.push_back(empty(bind_shape(tensor, rows), at.border_bytes).requires_grad_(true));
    queue_.immediate = true;
  }

  // After this call, weight gradients wait for drain().
  void defer_weight_gradients() { queue_.immediate = false; }

  void forward() {
    const at::AutoGradMode grad(spec_.has_backward);
    MicrobatchContext context{.batch = &batch_,
                              .weight_grads = &queue_,
                              .is_memory_bound = case_.is_memory_bound,
                              .recompute_attention = case_.recompute_attention};
    for (const auto& tensor : layer_->forward(input_, context)) {
      if (spec_.has_backward) edges_.push_back(torch::autograd::impl::gradient_edge(tensor));
      outputs_.push_back(tensor.detach());
    }
    if (!spec_.has_backward) input_.clear();
  }
  // Replaces the outputs, which belong to the next layer, by their gradients.
  void receive_gradients() {
    if (!spec_.has_backward) return outputs_.clear();
    for (auto& tensor : outputs_) tensor = at::empty_like(tensor);
  }
  void backward() { run_backward(edges_, outputs_); }
  void drain() { queue_.drain(); }

  int64_t kept_bytes() const {
    auto tensors = saved_in_graph(edges_);
    tensors.insert(tensors.end(), input_.begin(), input_.end());
    return bytes_of(storages_of(tensors));
  }
  int64_t waiting_bytes() const { return bytes_of(storages_of(queue_.tensors())); }

 private:
  static at::Tensor empty(const std::vector<int64_t>& shape, int64_t bytes) {
    return at::empty(shape, at::TensorOptions(at::kMeta).dtype(type_of(bytes)));
  }

  const LayerSpec& spec_;
  const DryCase case_;
  DryCommunicator comm_;
  Microbatch batch_;
  std::vector<Parameter> params_;
  std::unique_ptr<Layer> layer_;
  WeightGradQueue queue_;
  Border input_, outputs_;
  std::vector<Edge> edges_;
};

// The peak number of bytes in use during `run`, beyond those in use before.
template <class Run>
int64_t peak_beyond(MetaBytes& bytes, const Run& run) {
  const int64_t before = bytes.live();
  bytes.restart_peak();
  run();
  return bytes.peak() - before;
}

}  // namespace

DryBytes dry_bytes(const LayerSpec& layer, const std::vector<BorderTensor>& input, const KeptCase& at) {
  const DryCase dry{.sequences = at.tokens / at.length,
                    .length = at.length,
                    .t = at.t,
                    .t_degree = at.t_degree,
                    .sequence_parallel = at.rows < at.tokens,
                    .element_bytes = at.element_bytes,
                    .border_bytes = at.border_bytes,
                    .recompute_attention = at.recompute_attention,
                    .attention_in_fp32 = at.attention_in_fp32,
                    .is_memory_bound = true};
  DryBytes result;
  const RepresentedDevice device(at.on_accelerator);
  MetaBytes bytes;
  const auto run = [&](bool deferred) {
    DryLayer one(layer, input, dry);
    if (deferred) one.defer_weight_gradients();
    result.passes.forward = peak_beyond(bytes, [&] { one.forward(); });
    one.receive_gradients();
    result.kept.activations = one.kept_bytes();
    (deferred ? result.passes.input_gradient : result.passes.backward) = peak_beyond(bytes, [&] { one.backward(); });
    result.kept.weight_pairs = one.waiting_bytes();
  };
  run(false);
  run(true);
  return result;
}

LayerWork dry_work(const LayerSpec& layer, const std::vector<BorderTensor>& input, const WorkShape& shape) {
  DryLayer one(layer, input,
               {.sequences = shape.sequences,
                .length = shape.length,
                .t_degree = shape.tensor,
                .sequence_parallel = shape.sequence_parallel,
                .element_bytes = shape.value_bytes,
                .border_bytes = shape.border_bytes});
  one.defer_weight_gradients();
  WorkNotes notes(shape);
  one.forward();
  one.receive_gradients();
  notes.phase = Phase::backward_input;
  one.backward();
  notes.phase = Phase::backward_weight;
  one.drain();
  notes.work.recomputable = layer.is_block && layer.has_backward;
  for (const auto& unit : layer.units) {
    if (unit.parts != kAttentionHeads) continue;
    notes.work.heads = unit.count;
    notes.work.hidden = layer.output.at(0).shape.back();
  }
  return std::move(notes.work);
}

namespace {

// Caches the results of dry runs for layers of one kind.
class DryRuns {
 public:
  DryRuns(LayerSpec layer, std::vector<BorderTensor> input) : layer_(std::move(layer)), input_(std::move(input)) {}

  DryBytes bytes(const KeptCase& at) {
    return remembered(bytes_, at, [&] { return dry_bytes(layer_, input_, at); });
  }
  LayerWork work(const WorkShape& shape) {
    return remembered(work_, shape, [&] { return dry_work(layer_, input_, shape); });
  }

 private:
  template <class Key, class Value, class Find>
  Value remembered(std::map<Key, Value>& all, const Key& key, const Find& find) {
    {
      const std::scoped_lock lock(mutex_);
      if (const auto found = all.find(key); found != all.end()) return found->second;
    }
    Value value = find();  // another thread may compute the same value in the meantime
    const std::scoped_lock lock(mutex_);
    return all.emplace(key, std::move(value)).first->second;
  }

  const LayerSpec layer_;
  const std::vector<BorderTensor> input_;
  std::mutex mutex_;
  std::map<KeptCase, DryBytes> bytes_;
  std::map<WorkShape, LayerWork> work_;
};

// A third of the FLOPs of forward and backward per token, without the attention core; those of the forward pass if the
// layer is trained. If a head uses only some rows, their FLOPs are spread over all tokens of a sequence.
double third_of_flops(DryRuns& runs) {
  constexpr WorkShape kTypical{.length = 128};
  double sum = 0;
  for (const auto& product : runs.work(kTypical).products)
    if (!product.core) sum += product.flops();
  return sum / 3 / kTypical.tokens();
}

}  // namespace

void add_costs_of_ops(ModelSpec& spec) {
  std::map<std::string, std::shared_ptr<DryRuns>> of_kind;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    const auto input = i > 0 ? spec.layers[i - 1].output : std::vector<BorderTensor>();
    if (layer.work) continue;  // the layer states its own costs
    std::string kind = layer_kind(layer);
    for (const auto& tensor : input)
      for (const int64_t size : tensor.shape) kind += cat(" ", size);
    auto& runs = of_kind[kind];
    if (!runs) runs = std::make_shared<DryRuns>(layer, input);
    layer.work = [runs = runs](const WorkShape& shape) { return runs->work(shape); };
    layer.kept = [runs = runs](const KeptCase& at) { return runs->bytes(at).kept; };
    layer.passes = [runs = runs](const KeptCase& at) { return runs->bytes(at).passes; };
    layer.flops_per_token = third_of_flops(*runs);
  }
}

}  // namespace shardline
