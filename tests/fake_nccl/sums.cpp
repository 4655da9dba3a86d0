#include "tests/fake_nccl/sums.h"

#include <atomic>
#include <cstring>

#include "tests/fake_nccl/fake_nccl.h"

namespace shardline::fake {
namespace {

std::atomic<bool> rounds_hops = false;

}  // namespace

void round_at_each_hop(bool rounds) {
  rounds_hops = rounds;
}

at::ScalarType scalar_type(NcclType type) {
  constexpr at::ScalarType kTypes[] = {at::kChar, at::kByte,     at::kInt,   at::kLong,
                                       at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
  return kTypes[static_cast<int>(type)];
}

void reduce_as_nccl(ReduceOp op, at::ScalarType type, const std::vector<const void*>& inputs,
                    const std::vector<void*>& outputs, int64_t count) {
  if (!rounds_hops) return reduce_in_order(op, type, inputs, outputs, count);
  // Adds like a ring: each rank rounds what it passes on.
  std::vector<char> sum(count * c10::elementSize(type));
  std::memcpy(sum.data(), inputs[0], sum.size());
  for (size_t i = 1; i < inputs.size(); ++i) reduce_in_order(op, type, {sum.data(), inputs[i]}, {sum.data()}, count);
  for (void* output : outputs) std::memcpy(output, sum.data(), sum.size());
}

}  // namespace shardline::fake
