#include "tensor_parallel/ops/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/memory/caching_allocator.h"
#include "core/model/backward.h"
#include "core/model/work_notes.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/kernels/row_kernels.h"
#include "tensor_parallel/ops/elementwise.h"

namespace shardline {
namespace {

constexpr double kBase = 10000;

// The queries and keys of rows that are tokens: [tokens, 2 * heads, head_dim].
at::Tensor queries_and_keys(const at::Tensor& qkv, int64_t tokens, int64_t head_dim) {
  const int64_t heads = qkv.size(1) / head_dim / 3;
  return qkv.narrow(0, 0, tokens).view({tokens, 3 * heads, head_dim}).narrow(1, 0, 2 * heads);
}

}  // namespace

at::Tensor RotaryTable::for_tensor(const at::Tensor& like) const {
  const at::ScalarType type = wide_type(like);
  const std::scoped_lock lock(mutex_);
  const auto stream = current_stream_id(like.device());
  for (const auto& table : tables_)
    if (table.values.scalar_type() == type && table.values.device() == like.device() && table.stream == stream)
      return table.values;
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryClass::workspace);
  const double divisor = -features_;
  const auto exponents = at::arange(0, features_, 2, at::kDouble) / divisor;
  const auto angles = at::outer(at::arange(positions_, at::kDouble), at::pow(kBase, exponents));
  tables_.push_back({on_device(at::stack({angles.cos(), angles.sin()}).to(type), like.device()), stream});
  return tables_.back().values;
}

at::Tensor rotated(const TensorParallel& tp, const at::Tensor& qkv, const Microbatch& batch, int64_t head_dim,
                   const std::shared_ptr<const RotaryTable>& table) {
  SL_ASSERT(qkv.is_meta() || batch.position_count <= table->positions(), batch.position_count, " positions of ",
            table->positions());
  const auto turn = [tp, &batch, head_dim, table](const at::Tensor& values, bool back) {
    const at::NoGradGuard no_grad;
    note_sweep(values.numel() / head_dim / 3 * 2 * table->features(), 2);
    if (values.is_meta()) return;
    const auto position = positions_of_rows(tp, batch);
    rotate_pairs_(queries_and_keys(values.detach(), position.size(0), head_dim), table->for_tensor(values), position,
                  back);
  };
  turn(qkv, false);
  return with_backward(qkv, {qkv}, {}, "Rotated", [turn](const at::Tensor& d_rotated, const SavedTensors&) {
    const auto d_qkv = d_rotated.contiguous();
    turn(d_qkv, true);
    return std::vector<at::Tensor>{d_qkv};
  });
}

}  // namespace shardline
