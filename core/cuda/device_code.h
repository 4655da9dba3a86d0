// The functions that our kernels are written with. nvcc compiles them for GPUs; any other compiler compiles their host
// twins, in which the threads of a block are fibers (core/cuda/twin): the same source runs index by index, under
// sanitizers. This file includes no torch header, and .cu files must not either.
//
// Kernels use the functions below instead of CUDA's own names, take all shared memory from a SharedRoom, and are
// started by launch() (core/cuda/launch.h). They are declared as
//
//   SHARDLINE_KERNEL(threads, name, parameters...) { ... }
//
// where `threads` is the maximum number of threads in a block: the compiler limits the registers of a thread so that
// such a block fits, and launch() refuses larger blocks.
#pragma once
#include <cstdint>

#include "core/numbers/half_numbers.h"
#include "core/numbers/philox_block.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define SHARDLINE_KERNEL(threads, name, ...) \
  __global__ void __launch_bounds__(threads) name(::shardline::cuda::BlockOf<threads> __VA_OPT__(, ) __VA_ARGS__)
#define SHARDLINE_DEVICE __device__ __forceinline__
#define SHARDLINE_UNROLLED _Pragma("unroll")  // before loops over arrays that should stay in registers
#define SHARDLINE_ROLLED _Pragma("unroll 1")  // before loops that would be too large if unrolled
#else
#include <bit>
#include <cmath>

#include "core/cuda/twin/grid.h"
#define SHARDLINE_KERNEL(threads, name, ...) void name(::shardline::cuda::BlockOf<threads> __VA_OPT__(, ) __VA_ARGS__)
#define SHARDLINE_DEVICE inline
#define SHARDLINE_UNROLLED
#define SHARDLINE_ROLLED
#endif

namespace shardline::cuda {

constexpr int kWarp = 32;

// The first parameter of every kernel: the maximum number of threads in a block, encoded in the kernel's type.
template <int kThreads>
struct BlockOf {};

#ifdef __CUDACC__

SHARDLINE_DEVICE int thread_index() {
  return threadIdx.x;
}
SHARDLINE_DEVICE int block_threads() {
  return blockDim.x;
}
SHARDLINE_DEVICE int64_t block_x() {
  return blockIdx.x;
}
SHARDLINE_DEVICE int64_t block_y() {
  return blockIdx.y;
}
SHARDLINE_DEVICE int64_t blocks_x() {
  return gridDim.x;
}
SHARDLINE_DEVICE int64_t blocks_y() {
  return gridDim.y;
}
SHARDLINE_DEVICE void sync_block() {
  __syncthreads();
}
SHARDLINE_DEVICE void sync_warp() {
  __syncwarp();
}

// These return the value that another lane passed: the lane whose number is the caller's xor `mask`, or lane `lane`.
// All lanes of a warp must call them.
SHARDLINE_DEVICE float shuffle_xor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
SHARDLINE_DEVICE uint32_t shuffle_xor(uint32_t value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
SHARDLINE_DEVICE float shuffle(float value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}

// An array in shared memory. add_atomically takes only integers, because their sum does not depend on the order.
template <class T>
struct SharedArray {
  SHARDLINE_DEVICE T& operator[](int64_t i) const { return values[i]; }
  SHARDLINE_DEVICE SharedArray part(int64_t first, [[maybe_unused]] int64_t count) const { return {values + first}; }
  T* values;
};
SHARDLINE_DEVICE void add_atomically(unsigned long long& to, unsigned long long value) {
  atomicAdd(&to, value);
}
SHARDLINE_DEVICE void add_atomically_to_global(unsigned long long* to, unsigned long long value) {
  atomicAdd(to, value);
}

// Hands out the block's shared memory as aligned arrays. All threads must take the same arrays in the same order.
class SharedRoom {
 public:
  template <class T>
  SHARDLINE_DEVICE SharedArray<T> take(int64_t count) {
    extern __shared__ __align__(16) unsigned char bytes[];
    const uint32_t begin = (offset_ + 15u) / 16u * 16u;
    offset_ = begin + count * sizeof(T);
    return {reinterpret_cast<T*>(bytes + begin)};
  }

 private:
  uint32_t offset_ = 0;
};

// Starts a copy of kCount numbers to a shared array, or of zeros if the source does not exist. Source and target must
// be aligned to the size of the copy: 4, 8 or 16 bytes. No thread may access the target until this thread has waited
// for the copy; the other threads of the block must also pass a barrier after that.
template <int kCount, class T>
SHARDLINE_DEVICE void start_copy(const SharedArray<T>& to, int first, const T* from, bool exists) {
  constexpr int kBytes = kCount * sizeof(T);
  const uint32_t target = __cvta_generic_to_shared(to.values) + first * sizeof(T);
  const int bytes = exists ? kBytes : 0;  // the rest of kBytes becomes zero
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(target), "l"(from), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;"
                 :
                 : "r"(target), "l"(from), "r"(bytes), "n"(kBytes)
                 : "memory");
}
// Waits for all copies that this thread started.
SHARDLINE_DEVICE void wait_for_copies() {
  asm volatile("cp.async.wait_all;" : : : "memory");
}

// 2^x; results below 2^-126 are 0.
SHARDLINE_DEVICE float exponential2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
// The larger number; if one is NaN, the other.
SHARDLINE_DEVICE float larger(float a, float b) {
  return fmaxf(a, b);
}
SHARDLINE_DEVICE float bits_to_float(uint32_t bits) {
  return __uint_as_float(bits);
}
SHARDLINE_DEVICE uint32_t float_to_bits(float x) {
  return __float_as_uint(x);
}
SHARDLINE_DEVICE int leading_zeros(uint64_t x) {
  return __clzll(x);
}
SHARDLINE_DEVICE uint64_t double_to_bits(double x) {
  return __double_as_longlong(x);
}

// Conversions between half precision and fp32. They round to nearest even, like those of core/numbers/half_numbers.h.
SHARDLINE_DEVICE float number(float x) {
  return x;
}
SHARDLINE_DEVICE float number(Bf16 x) {
  return __uint_as_float(uint32_t{x.bits} << 16);
}
SHARDLINE_DEVICE float number(Fp16 x) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
}
template <class S>
SHARDLINE_DEVICE S stored(float x);
template <>
SHARDLINE_DEVICE float stored<float>(float x) {
  return x;
}
template <>
SHARDLINE_DEVICE Bf16 stored<Bf16>(float x) {
  Bf16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}
template <>
SHARDLINE_DEVICE Fp16 stored<Fp16>(float x) {
  Fp16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}

#else

inline int thread_index() {
  return twin::thread_index();
}
inline int block_threads() {
  return twin::block_threads();
}
inline int64_t block_x() {
  return twin::block_index().x;
}
inline int64_t block_y() {
  return twin::block_index().y;
}
inline int64_t blocks_x() {
  return twin::grid_size().x;
}
inline int64_t blocks_y() {
  return twin::grid_size().y;
}
inline void sync_block() {
  twin::sync_block();
}
inline void sync_warp() {
  twin::sync_warp();
}
inline uint32_t shuffle(uint32_t value, int lane) {
  return twin::exchange(twin::Exchange::shuffle, value)[lane];
}
inline float shuffle(float value, int lane) {
  return std::bit_cast<float>(shuffle(std::bit_cast<uint32_t>(value), lane));
}
inline uint32_t shuffle_xor(uint32_t value, int mask) {
  return shuffle(value, (twin::thread_index() % kWarp) ^ mask);
}
inline float shuffle_xor(float value, int mask) {
  return shuffle(value, (twin::thread_index() % kWarp) ^ mask);
}

template <class T>
using SharedArray = twin::SharedArray<T>;
template <class T>
void add_atomically(twin::SharedElement<T> to, T value) {
  to.add_atomically(value);
}
inline void add_atomically_to_global(unsigned long long* to, unsigned long long value) {
  *to += value;
}

class SharedRoom {
 public:
  template <class T>
  SharedArray<T> take(int64_t count) {
    return twin::take_shared<T>(offset_, count);
  }

 private:
  size_t offset_ = 0;
};

template <int kCount, class T>
void start_copy(const SharedArray<T>& to, int first, const T* from, bool exists) {
  to.start_copy(first, kCount, exists ? from : nullptr);
}
inline void wait_for_copies() {
  twin::wait_for_copies();
}

inline float exponential2(float x) {
  return std::exp2(x);
}
inline float larger(float a, float b) {
  return std::fmax(a, b);
}
inline float bits_to_float(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline uint32_t float_to_bits(float x) {
  return std::bit_cast<uint32_t>(x);
}
inline int leading_zeros(uint64_t x) {
  return std::countl_zero(x);
}
inline uint64_t double_to_bits(double x) {
  return std::bit_cast<uint64_t>(x);
}
template <class S>
float number(S x) {
  return widen(x);
}
template <class S>
S stored(float x) {
  return narrow<S>(x);
}

#endif

SHARDLINE_DEVICE int lane_index() {
  return thread_index() % kWarp;
}
SHARDLINE_DEVICE int warp_index() {
  return thread_index() / kWarp;
}

// The sum and the maximum over the lanes of a warp, always computed in the same order; every lane gets the result.
SHARDLINE_DEVICE float warp_sum(float value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}
SHARDLINE_DEVICE float warp_max(float value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const float other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  return value;
}

// kCount adjacent numbers that are read or written at once; their address is a multiple of their total size.
template <class S, int kCount>
struct alignas(kCount * sizeof(S)) Pack {
  S value[kCount];
};
template <int kCount, class S>
SHARDLINE_DEVICE Pack<S, kCount> load(const S* from) {
  return *reinterpret_cast<const Pack<S, kCount>*>(from);
}
template <int kCount, class S>
SHARDLINE_DEVICE Pack<S, kCount> load(const SharedArray<S>& from, int64_t first) {
#ifdef __CUDACC__
  const S* const start = &from[first];
  return load<kCount>(start);
#else
  Pack<S, kCount> pack;
  for (int j = 0; j < kCount; ++j) pack.value[j] = from[first + j];
  return pack;
#endif
}
template <int kCount, class S>
SHARDLINE_DEVICE void store(S* to, const Pack<S, kCount>& pack) {
  *reinterpret_cast<Pack<S, kCount>*>(to) = pack;
}
template <int kCount, class S>
SHARDLINE_DEVICE void store(const SharedArray<S>& to, int64_t first, const Pack<S, kCount>& pack) {
#ifdef __CUDACC__
  store<kCount>(&to[first], pack);
#else
  for (int j = 0; j < kCount; ++j) to[first + j] = pack.value[j];
#endif
}

}  // namespace shardline::cuda
