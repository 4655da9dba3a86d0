#include "core/comm/device_moves.h"

#include <ATen/ops/maximum.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace shardline {
namespace {

// The type in which sums are accumulated, as in communicator_reduce.h.
at::ScalarType accumulator_of(at::ScalarType type) {
  if (type == at::kBFloat16 || type == at::kHalf) return at::kFloat;
  return type == at::kInt ? at::kLong : type;
}

// Adds in ascending rank order.
at::Tensor reduced(ReduceOp op, const std::vector<at::Tensor>& inputs) {
  at::Tensor total = inputs[0].to(accumulator_of(inputs[0].scalar_type()), /*non_blocking=*/true, /*copy=*/true);
  for (size_t rank = 1; rank < inputs.size(); ++rank) {
    if (op == ReduceOp::sum)
      total.add_(inputs[rank]);
    else
      total = at::maximum(total, inputs[rank].to(total.scalar_type()));
  }
  return total;
}

// Prevents the memory from being reused before the current stream has reached this point.
void use_here(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return;
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  guard.recordDataPtrOnStream(tensor.storage().data_ptr(), guard.getStream(tensor.device()));
}

void copy(const at::Tensor& to, const at::Tensor& from) {
  if (to.numel() > 0 && to.const_data_ptr() != from.const_data_ptr()) to.copy_(from, /*non_blocking=*/true);
}

}  // namespace

c10::Stream stream_of(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

c10::Event queued_so_far(at::Device device) {
  c10::Event event(device.type());
  event.record(stream_of(device));
  return event;
}

void move_on_device(const std::vector<std::optional<CommRequest>>& ranks) {
  const CommRequest& first = *ranks[0];
  const int64_t n = std::ssize(ranks);
  std::vector<at::Tensor> inputs, outputs;
  for (const auto& request : ranks) {
    inputs.push_back(request->input.detach().view(-1));
    outputs.push_back(request->output.detach().view(-1));
    use_here(request->input);
    use_here(request->output);
  }
  const auto part = [n](const at::Tensor& whole, int64_t rank) {
    const int64_t length = whole.numel() / n;
    return whole.narrow(0, rank * length, length);
  };
  switch (first.op) {
    case CommOp::all_reduce: {
      const at::Tensor total = reduced(first.reduce, inputs);
      for (const auto& output : outputs) copy(output, total);
      break;
    }
    case CommOp::reduce_scatter: {
      // An output may be part of its rank's input, so all totals are computed before any is written.
      std::vector<at::Tensor> totals;
      for (int64_t r = 0; r < n; ++r) {
        std::vector<at::Tensor> parts;
        for (const auto& input : inputs) parts.push_back(part(input, r));
        totals.push_back(reduced(first.reduce, parts));
      }
      for (int64_t r = 0; r < n; ++r) copy(outputs[r], totals[r]);
      break;
    }
    case CommOp::all_gather:
      for (const auto& output : outputs)
        for (int64_t from = 0; from < n; ++from) copy(part(output, from), inputs[from]);
      break;
    case CommOp::all_to_all:
      for (int64_t r = 0; r < n; ++r)
        for (int64_t from = 0; from < n; ++from) copy(part(outputs[r], from), part(inputs[from], r));
      break;
    case CommOp::broadcast:
      for (const auto& output : outputs) copy(output, inputs[first.peer]);
      break;
    default:
      SL_ASSERT(false, name_of(first.op), " is not a collective");
  }
}

void copy_on_device(const at::Tensor& to, const at::Tensor& from) {
  use_here(to);
  use_here(from);
  copy(to.detach().view(-1), from.detach().view(-1));
}

}  // namespace shardline
