#include "tensor_parallel/ops/linear.h"

#include <ATen/core/grad_mode.h>

#include "core/model/backward.h"
#include "core/model/work_notes.h"
#include "tensor_parallel/products/products.h"

namespace shardline {
namespace {

at::Tensor with_rows(const at::Tensor& w, int64_t rows) {
  return w.view({rows, rows == 0 ? 0 : w.numel() / rows});
}
at::Tensor with_columns(const at::Tensor& w, int64_t columns) {
  return w.view({columns == 0 ? 0 : w.numel() / columns, columns});
}

// The three products, w [n, k].
at::Tensor result(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  note_product(x.size(0), w.size(0), w.size(1));
  return linear_forward(x, w, bias);
}
at::Tensor input_gradient(const at::Tensor& dy, const at::Tensor& w) {
  note_product(dy.size(0), w.size(1), w.size(0));
  return linear_input_gradient(dy, w);
}
void add_gradient(const at::Tensor& w_grad, const at::Tensor& dy, const at::Tensor& x) {
  note_product(w_grad.size(0), w_grad.size(1), x.size(0));
  add_weight_gradient(w_grad, dy, x);
}

void run_or_queue(WeightGradQueue* queue, const at::Tensor& x, const at::Tensor& dy, WeightGradQueue::AddGradient add) {
  queue ? queue->push(x, dy, std::move(add)) : add(x, dy);
}

}  // namespace

at::Tensor column_linear(const TensorParallel& tp, const at::Tensor& x, int64_t tokens, Parameter& w, Parameter* b,
                         WeightGradQueue* queue) {
  const int64_t k = x.size(1);
  at::Tensor y;
  {
    at::NoGradGuard no_grad;
    y = result(gather_rows(tp, x, tokens), with_columns(w.value, k), b ? b->value.view(-1) : at::Tensor());
  }
  const auto add = [=, &w](const at::Tensor& whole, const at::Tensor& dy) {
    if (w.grad.defined()) add_gradient(with_columns(w.grad, k), dy, whole);
    if (b && b->grad.defined()) add_bias_gradient(b->grad.view(-1), dy);
  };
  const bool trains = w.grad.defined() || (b && b->grad.defined());
  const SavedTensors kept = trains ? SavedTensors{x} : SavedTensors{};
  return with_backward(y, {x}, kept, "ColumnLinear", [=, &w](const at::Tensor& d_y, const SavedTensors& saved) {
    const auto dy = d_y.contiguous();
    const auto d_partial = [&] { return input_gradient(dy, with_columns(w.value, k)); };
    if (!trains) return std::vector<at::Tensor>{reduce_rows(tp, d_partial())};
    const auto& stored = saved[0];
    if (b && b->grad.defined()) note_sweep(dy.numel(), 1);
    if (queue && !queue->immediate) {
      queue->push(stored, dy,
                  [=](const at::Tensor& part, const at::Tensor& d) { add(gather_rows(tp, part, tokens), d); });
      return std::vector<at::Tensor>{reduce_rows(tp, d_partial())};
    }
    // Each product overlaps with a message: first the gather of the input, then the reduction of its gradient.
    PendingGather whole(tp, stored, tokens);
    PendingRows dx(tp, d_partial());
    add(whole.wait(), dy);
    return std::vector<at::Tensor>{dx.wait()};
  });
}

at::Tensor row_linear(const TensorParallel& tp, const at::Tensor& x, Parameter& w, WeightGradQueue* queue) {
  const int64_t n = w.value.size(0), tokens = x.size(0);
  at::Tensor y;
  {
    at::NoGradGuard no_grad;
    y = reduce_rows(tp, result(x, with_rows(w.value, n), {}));
  }
  const auto add = [n, &w](const at::Tensor& stored, const at::Tensor& dy) {
    add_gradient(with_rows(w.grad, n), dy, stored);
  };
  const SavedTensors kept = w.grad.defined() ? SavedTensors{x} : SavedTensors{};
  return with_backward(y, {x}, kept, "RowLinear", [=, &w](const at::Tensor& d_y, const SavedTensors& saved) {
    const auto dy = gather_rows(tp, d_y.contiguous(), tokens);
    auto dx = input_gradient(dy, with_rows(w.value, n));
    if (w.grad.defined()) run_or_queue(queue, saved[0], dy, add);
    return std::vector<at::Tensor>{dx};
  });
}

}  // namespace shardline
