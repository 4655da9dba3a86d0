#include "tensor_parallel/linear.h"

#include <ATen/core/grad_mode.h>

#include "tensor_parallel/backward.h"
#include "tensor_parallel/products.h"

namespace shardline {
namespace {

at::Tensor with_rows(const at::Tensor& w, int64_t rows) {
  return w.view({rows, rows == 0 ? 0 : w.numel() / rows});
}
at::Tensor with_columns(const at::Tensor& w, int64_t columns) {
  return w.view({columns == 0 ? 0 : w.numel() / columns, columns});
}

void run_or_queue(WeightGradQueue* queue, std::function<void()> product) {
  queue ? queue->push(std::move(product)) : product();
}

}  // namespace

at::Tensor column_linear(const TensorParallel& tp, const at::Tensor& x, int64_t tokens, Parameter& w, Parameter* b,
                         WeightGradQueue* queue) {
  const int64_t k = x.size(1);
  at::Tensor y;
  {
    at::NoGradGuard no_grad;
    y = linear_forward(gather_rows(tp, x, tokens), with_columns(w.value, k), b ? b->value.view(-1) : at::Tensor());
  }
  const auto add_gradients = [=, &w](const at::Tensor& dy, const at::Tensor& whole) {
    if (w.grad.defined()) add_weight_gradient(with_columns(w.grad, k), dy, whole);
    if (b && b->grad.defined()) add_bias_gradient(b->grad.view(-1), dy);
  };
  return with_backward(y, {x}, "ColumnLinear", [=, &w, x = x.detach()](const at::Tensor& d_y) {
    const auto dy = d_y.contiguous();
    const auto d_partial = [&] { return linear_input_gradient(dy, with_columns(w.value, k)); };
    if (queue && !queue->immediate) {
      queue->push([=] { add_gradients(dy, gather_rows(tp, x, tokens)); });
      return std::vector<at::Tensor>{reduce_rows(tp, d_partial())};
    }
    // Each product hides a message: the input on its way here, then its gradient on its way out.
    PendingGather whole(tp, x, tokens);
    PendingRows dx(tp, d_partial());
    add_gradients(dy, whole.wait());
    return std::vector<at::Tensor>{dx.wait()};
  });
}

at::Tensor row_linear(const TensorParallel& tp, const at::Tensor& x, Parameter& w, WeightGradQueue* queue) {
  const int64_t n = w.value.size(0), tokens = x.size(0);
  at::Tensor y;
  {
    at::NoGradGuard no_grad;
    y = reduce_rows(tp, linear_forward(x, with_rows(w.value, n), {}));
  }
  return with_backward(y, {x}, "RowLinear", [=, &w, x = x.detach()](const at::Tensor& d_y) {
    const auto dy = gather_rows(tp, d_y.contiguous(), tokens);
    auto dx = linear_input_gradient(dy, with_rows(w.value, n));
    run_or_queue(queue, [=, &w] {
      if (w.grad.defined()) add_weight_gradient(with_rows(w.grad, n), dy, x);
    });
    return std::vector<at::Tensor>{dx};
  });
}

}  // namespace shardline
