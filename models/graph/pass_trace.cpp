#include "models/graph/pass_trace.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/variable.h>

#include "core/error.h"
#include "core/model/backward.h"
#include "models/graph/storage_watch.h"

namespace shardline {
namespace {

// The trace, scaled to a microbatch of a different size and dtype.
struct Scaled {
  PassTrace trace;
  int64_t tokens;

  double tokens_ratio(int64_t other) const { return 1.0 * other / tokens; }
  int64_t bytes(int64_t traced, int64_t other_tokens, int64_t element_bytes) const {
    const int64_t scaled = traced * tokens_ratio(other_tokens);
    return scaled * element_bytes / 4;
  }
};

LayerWork work_of(const Scaled& scaled, const WorkShape& shape, bool recomputable) {
  LayerWork work;
  work.recomputable = recomputable;
  const double ratio = scaled.tokens_ratio(shape.tokens());
  for (Product product : scaled.trace.products) {
    product.count *= ratio;
    work.products.push_back(product);
    product.phase = Phase::backward_input;  // both gradients
    std::swap(product.n, product.k);
    work.products.push_back(product);
    std::swap(product.m, product.k);
    work.products.push_back(product);
  }
  if (work.products.empty()) work.products.push_back({.count = 0});  // the planner reads the last layer's columns
  const double made = scaled.trace.made_bytes * shape.value_bytes / 4 * ratio;
  work.sweeps = {{.phase = Phase::forward, .bytes = 2 * made}, {.phase = Phase::backward_input, .bytes = 4 * made}};
  return work;
}

}  // namespace

PassTrace trace_pass(const std::vector<at::Tensor>& known, const std::function<at::Tensor()>& forward) {
  PassTrace trace;
  const at::AutoGradMode grad(true);
  StorageWatch memory(known);
  torch::autograd::Edge edge;
  at::Tensor d_output;
  {
    const auto output = forward();
    trace.output = output.sizes().vec();
    trace.forward_bytes = memory.peak();
    trace.made_bytes = memory.made();
    trace.products = memory.products();
    edge = torch::autograd::impl::gradient_edge(output);
    d_output = at::ones_like(output.detach());
  }
  trace.kept_bytes = memory.live() - d_output.nbytes();
  const int64_t found = memory.live();
  memory.restart_peak();
  backward_on_this_thread({edge}, {d_output});
  trace.backward_bytes = memory.peak() - found;
  return trace;
}

void state_traced_costs(LayerSpec& layer, const PassTrace& trace, int64_t tokens, int64_t features, int64_t logits) {
  const Scaled scaled{trace, tokens};
  layer.kept = [scaled, columns = features + logits](const KeptCase& kept_case) {
    return KeptBytes{.activations = scaled.bytes(scaled.trace.kept_bytes, kept_case.tokens, kept_case.element_bytes) +
                                    kept_case.rows * columns * kept_case.element_bytes};
  };
  layer.passes = [scaled, logits](const KeptCase& kept_case) {
    const int64_t loss =
        2 * kept_case.rows * logits * kept_case.element_bytes;  // a copy without the last position, and its log-softmax
    const int64_t backward =
        scaled.bytes(scaled.trace.backward_bytes, kept_case.tokens, kept_case.element_bytes) + loss;
    return PassBytes{scaled.bytes(scaled.trace.forward_bytes, kept_case.tokens, kept_case.element_bytes) + loss,
                     backward, backward};
  };
  layer.work = [scaled, recomputable = layer.is_block](const WorkShape& shape) {
    return work_of(scaled, shape, recomputable);
  };
  for (const auto& product : scaled.trace.products) layer.flops_per_token += product.flops() / scaled.tokens;
}

std::string code_of(const PassTrace& trace) {
  std::string code = cat(trace.made_bytes, " ", trace.kept_bytes, " ", trace.forward_bytes, " ", trace.backward_bytes);
  for (const Product& product : trace.products)
    code += cat(" ", product.count, "*", product.m, "*", product.n, "*", product.k, product.stored ? "" : "'");
  return code;
}

}  // namespace shardline
