#include "models/program/ops/linear_op.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <vector>

#include "core/device/accelerator.h"
#include "models/program/ops/own_op.h"
#include "tensor_parallel/products/products.h"

namespace shardline {
namespace {

// The type in which a product with x is computed.
at::ScalarType product_type(const at::Tensor& x) {
  const auto device = x.device().type();
  return at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device) : x.scalar_type();
}

bool is_half(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf;
}

// The parameter that `weight` is the transpose of, or undefined.
at::Tensor transposed_parameter(const at::Tensor& weight) {
  if (!needs_gradient(weight) || !weight.is_view()) return {};
  const at::Tensor whole(weight._base());
  const bool is_transpose = whole.is_leaf() && whole.requires_grad() && whole.scalar_type() == weight.scalar_type() &&
                            whole.storage_offset() == weight.storage_offset() && whole.dim() == 2 &&
                            whole.size(0) == weight.size(1) && whole.size(1) == weight.size(0) &&
                            whole.stride(0) == weight.stride(1) && whole.stride(1) == weight.stride(0);
  return is_transpose ? whole : at::Tensor();
}

}  // namespace

bool is_own_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, WeightOrder order) {
  if (x.dim() < 2 || weight.dim() != 2 || x.numel() == 0 || weight.numel() == 0) return false;
  if (x.layout() != at::kStrided || weight.layout() != at::kStrided) return false;
  const int inputs = order == WeightOrder::outputs_first ? 1 : 0;
  if (x.size(-1) != weight.size(inputs)) return false;
  if (bias.defined() && (bias.dim() != 1 || bias.size(0) != weight.size(1 - inputs))) return false;
  const at::ScalarType type = product_type(x);
  const bool converts = type != x.scalar_type() || at::autocast::is_autocast_enabled(x.device().type());
  const auto fits = [&](const at::Tensor& t) {
    if (t.device() != x.device()) return false;
    return converts ? t.scalar_type() == at::kFloat || is_half(t.scalar_type()) : t.scalar_type() == type;
  };
  const bool is_known = is_half(type) || type == at::kFloat || (type == at::kDouble && !converts);
  return is_known && (x.is_cpu() || is_accelerator(x.device())) && fits(x) && fits(weight) &&
         (!bias.defined() || fits(bias));
}

at::Tensor own_linear(const at::Tensor& x, const at::Tensor& given, const at::Tensor& bias, WeightOrder order) {
  // The gradient of a parameter is added where it belongs; that of its transpose would first be made, and then added
  // column by column.
  const at::Tensor parameter = transposed_parameter(given);
  const at::Tensor& weight = parameter.defined() ? parameter : given;
  const at::ScalarType type = product_type(x);
  const bool transposes = (order == WeightOrder::inputs_first) != parameter.defined(), needs_x = needs_gradient(x);
  const auto by_outputs = [=](const at::Tensor& w) { return transposes ? w.t() : w; };
  std::vector<int64_t> sizes = x.sizes().vec();
  at::Tensor rows, used, y;
  {
    const at::NoGradGuard no_grad;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    rows = x.detach().to(type).reshape({-1, x.size(-1)});
    used = weight.detach().to(type);
    y = linear_forward(rows, by_outputs(used), bias.defined() ? bias.detach().to(type) : bias);
    sizes.back() = y.size(1);
    y = y.view(sizes);
  }
  // For the gradient of the weight, the rows; for that of x, the weight, which is a tensor of the op's own if it is
  // rounded.
  const bool rounds = type != weight.scalar_type();
  SavedTensors saved;
  if (needs_gradient(weight)) saved.push_back(rows);
  if (needs_x && rounds) saved.push_back(used);
  const at::Tensor exact = needs_x && !rounds ? used : at::Tensor();
  sizes.back() = x.size(-1);
  return with_own_backward(y, {x}, {weight, bias}, saved, "Linear",
                           [=, of_x = x.scalar_type()](const at::Tensor& d_y, const SavedTensors& kept,
                                                       const std::vector<at::Tensor>& sums) {
                             const at::Tensor dy = d_y.to(type).reshape({-1, d_y.size(-1)}).contiguous();
                             if (sums[0].defined() && transposes) add_weight_gradient(sums[0], kept.front(), dy);
                             if (sums[0].defined() && !transposes) add_weight_gradient(sums[0], dy, kept.front());
                             if (sums[1].defined()) add_bias_gradient(sums[1], dy);
                             if (!needs_x) return std::vector<at::Tensor>(1);
                             const at::Tensor dx = linear_input_gradient(dy, by_outputs(rounds ? kept.back() : exact));
                             return std::vector<at::Tensor>{dx.view(sizes).to(of_x)};
                           });
}

}  // namespace shardline
