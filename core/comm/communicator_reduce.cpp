#include "core/comm/communicator_reduce.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/error.h"

namespace shardline {
namespace {

constexpr int64_t kBlock = 2048;  // elements whose accumulators fit into the L1 cache

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

// The loops are inlined into functions that are compiled twice: for any processor, and for processors with 32-byte
// vectors. Both compute the same sums.
#define SL_INLINE [[gnu::always_inline]] inline

template <class Accumulator, class Value>
SL_INLINE void widen(const Value* __restrict value, Accumulator* __restrict wide, int64_t n) {
  for (int64_t i = 0; i < n; ++i) wide[i] = value[i];
}

template <class Accumulator, class Value>
SL_INLINE void narrow(const Accumulator* __restrict wide, Value* __restrict value, int64_t n) {
  for (int64_t i = 0; i < n; ++i) value[i] = wide[i];
}

template <class Value>
SL_INLINE void add(Value* __restrict sum, const Value* __restrict value, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += value[i];
}

template <class Value>
SL_INLINE void take_larger(Value* __restrict largest, const Value* __restrict value, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    largest[i] = largest[i] >= value[i] || largest[i] != largest[i] ? largest[i] : value[i];
}

struct AnyProcessor {
  template <class Accumulator, class Value>
  SL_INLINE static void to_wide(const Value* value, Accumulator* wide, int64_t n) {
    widen(value, wide, n);
  }
  template <class Accumulator, class Value>
  SL_INLINE static void from_wide(const Accumulator* wide, Value* value, int64_t n) {
    narrow(wide, value, n);
  }
};

#ifdef __x86_64__
// Converts fp16 with instructions that compilers do not generate from c10's loops.
struct WithAvx2 : AnyProcessor {
  using AnyProcessor::from_wide;
  using AnyProcessor::to_wide;

  [[gnu::target("avx2,f16c")]] static void to_wide(const at::Half* value, float* wide, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
      _mm256_storeu_ps(wide + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(value + i))));
    for (; i < n; ++i) wide[i] = _cvtsh_ss(value[i].x);
  }
  [[gnu::target("avx2,f16c")]] static void from_wide(const float* wide, at::Half* value, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(value + i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(wide + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; ++i) value[i].x = _cvtss_sh(wide[i], _MM_FROUND_TO_NEAREST_INT);
  }
};
#endif

template <class Processor, class Value>
SL_INLINE void reduce(ReduceOp op, const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                      int64_t count) {
  using Accumulator = typename AccumulatorOf<Value>::type;
  Accumulator block[kBlock], wide[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const auto input = [&](size_t rank) { return static_cast<const Value*>(inputs[rank]) + begin; };
    const auto output = [&](size_t k) { return static_cast<Value*>(outputs[k]) + begin; };
    Processor::to_wide(input(0), block, n);
    for (size_t rank = 1; rank < inputs.size(); ++rank) {
      const Accumulator* values = wide;
      if constexpr (std::is_same_v<Value, Accumulator>)
        values = input(rank);
      else
        Processor::to_wide(input(rank), wide, n);
      if (op == ReduceOp::sum)
        add(block, values, n);
      else
        take_larger(block, values, n);
    }
    Processor::from_wide(block, output(0), n);
    for (size_t k = 1; k < outputs.size(); ++k) std::memcpy(output(k), output(0), n * sizeof(Value));
  }
}

template <class Processor>
SL_INLINE void reduce_type(ReduceOp op, at::ScalarType type, const std::vector<const void*>& inputs,
                           const std::vector<void*>& outputs, int64_t count) {
  switch (type) {
    case at::kFloat:
      return reduce<Processor, float>(op, inputs, outputs, count);
    case at::kDouble:
      return reduce<Processor, double>(op, inputs, outputs, count);
    case at::kBFloat16:
      return reduce<Processor, at::BFloat16>(op, inputs, outputs, count);
    case at::kHalf:
      return reduce<Processor, at::Half>(op, inputs, outputs, count);
    case at::kLong:
      return reduce<Processor, int64_t>(op, inputs, outputs, count);
    case at::kInt:
      return reduce<Processor, int32_t>(op, inputs, outputs, count);
    default:
      SL_ASSERT(false, "no reduction between ranks is defined for ", c10::toString(type));
  }
}

#ifdef __x86_64__
[[gnu::target("avx2,f16c")]] void reduce_with_avx2(ReduceOp op, at::ScalarType type,
                                                   const std::vector<const void*>& inputs,
                                                   const std::vector<void*>& outputs, int64_t count) {
  reduce_type<WithAvx2>(op, type, inputs, outputs, count);
}

// __builtin_cpu_supports of clang 14 does not know "f16c".
bool has_avx2_and_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

#undef SL_INLINE

}  // namespace

bool can_reduce(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf || type == at::kLong ||
         type == at::kInt;
}

void reduce_in_order(ReduceOp op, at::ScalarType type, const std::vector<const void*>& inputs,
                     const std::vector<void*>& outputs, int64_t count) {
#ifdef __x86_64__
  static const bool is_wide = has_avx2_and_f16c();
  if (is_wide) return reduce_with_avx2(op, type, inputs, outputs, count);
#endif
  reduce_type<AnyProcessor>(op, type, inputs, outputs, count);
}

}  // namespace shardline
