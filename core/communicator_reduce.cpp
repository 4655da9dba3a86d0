#include "core/communicator_reduce.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace shardline {
namespace {

constexpr int64_t kBlock = 2048;  // elements whose accumulators stay in the first-level cache

template <class Value>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
template <>
struct AccumulatorOf<int64_t> {
  using type = int64_t;
};
template <>
struct AccumulatorOf<int32_t> {
  using type = int64_t;
};

template <class Accumulator, class Value>
void add(Accumulator* __restrict sum, const Value* __restrict value, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<Accumulator>(value[i]);
}

template <class Accumulator, class Value>
void take_larger(Accumulator* __restrict largest, const Value* __restrict value, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const Accumulator candidate = static_cast<Accumulator>(value[i]);
    largest[i] = largest[i] >= candidate || largest[i] != largest[i] ? largest[i] : candidate;
  }
}

template <class Value>
void reduce(ReduceOp op, const std::vector<const void*>& inputs, const std::vector<void*>& outputs, int64_t count) {
  using Accumulator = typename AccumulatorOf<Value>::type;
  Accumulator block[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const auto input = [&](size_t rank) { return static_cast<const Value*>(inputs[rank]) + begin; };
    for (int64_t i = 0; i < n; ++i) block[i] = static_cast<Accumulator>(input(0)[i]);
    for (size_t rank = 1; rank < inputs.size(); ++rank) {
      if (op == ReduceOp::sum)
        add(block, input(rank), n);
      else
        take_larger(block, input(rank), n);
    }
    Value* const first = static_cast<Value*>(outputs[0]) + begin;
    for (int64_t i = 0; i < n; ++i) first[i] = static_cast<Value>(block[i]);
    for (size_t k = 1; k < outputs.size(); ++k)
      std::memcpy(static_cast<Value*>(outputs[k]) + begin, first, n * sizeof(Value));
  }
}

}  // namespace

bool can_reduce(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf || type == at::kLong ||
         type == at::kInt;
}

void reduce_in_order(ReduceOp op, at::ScalarType type, const std::vector<const void*>& inputs,
                     const std::vector<void*>& outputs, int64_t count) {
  switch (type) {
    case at::kFloat:
      return reduce<float>(op, inputs, outputs, count);
    case at::kDouble:
      return reduce<double>(op, inputs, outputs, count);
    case at::kBFloat16:
      return reduce<at::BFloat16>(op, inputs, outputs, count);
    case at::kHalf:
      return reduce<at::Half>(op, inputs, outputs, count);
    case at::kLong:
      return reduce<int64_t>(op, inputs, outputs, count);
    case at::kInt:
      return reduce<int32_t>(op, inputs, outputs, count);
    default:
      SL_ASSERT(false, "no reduction between ranks is defined for ", c10::toString(type));
  }
}

}  // namespace shardline
