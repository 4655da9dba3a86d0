// Matrix products of a warp and the loads of their operands: the PTX instructions mma.sync.m16n8k16 and ldmatrix, and
// host twins that place every element as the PTX manual specifies ("Matrix Fragments for mma.m16n8k16 with floating
// point type", "ldmatrix"). S is Bf16 or Fp16; a register holds two numbers, the first in its lower half. Lane L is
// number t = L % 4 of group g = L / 4. All lanes of a warp must take part.
#pragma once
#include "core/cuda/device_code.h"

namespace shardline::cuda {

#ifdef __CUDACC__

// Packs two numbers into a register.
template <class S>
SHARDLINE_DEVICE uint32_t pack_two(float low, float high);
template <>
SHARDLINE_DEVICE uint32_t pack_two<Bf16>(float low, float high) {
  uint32_t result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}
template <>
SHARDLINE_DEVICE uint32_t pack_two<Fp16>(float low, float high) {
  uint32_t result;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}

// c [16, 8] += a [16, 16] b [16, 8]. Lane (g, t) holds the elements (g, 2t), (g, 2t + 1), (g + 8, 2t) and (g + 8, 2t +
// 1) of c; the pairs of a that begin at (g, 2t), (g + 8, 2t), (g, 2t + 8) and (g + 8, 2t + 8); and the pairs in column
// g of b that begin at rows 2t and 2t + 8.
template <class S>
SHARDLINE_DEVICE void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
SHARDLINE_DEVICE void multiply_add<Bf16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
SHARDLINE_DEVICE void multiply_add<Fp16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads four 8 x 8 matrices. Lane 8 i + r passes the index in the shared array where row r of matrix i starts, a
// multiple of 8. In register i, lane (g, t) gets the elements (g, 2t) and (g, 2t + 1) of matrix i, or (2t, g) and (2t +
// 1, g) if transposed.
template <bool transposed, class S>
SHARDLINE_DEVICE void load_matrices(uint32_t (&registers)[4], const SharedArray<S>& from, int row_start) {
  const uint32_t address = __cvta_generic_to_shared(from.values) + row_start * sizeof(S);
  if constexpr (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(address)
                 : "memory");
}

#else

template <class S>
uint32_t pack_two(float low, float high) {
  return narrow<S>(low).bits | uint32_t{narrow<S>(high).bits} << 16;
}

template <class S>
float half_of(uint32_t two, int which) {
  const uint16_t bits = two >> (16 * which);
  return widen(S{bits});
}

template <class S>
void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Operands {
    uint32_t a[4], b[2];
  };
  const Operands mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const auto all = twin::exchange(twin::Exchange::registers, reinterpret_cast<uint64_t>(&mine));
  const auto of_lane = [&](int lane) { return reinterpret_cast<const Operands*>(all[lane]); };
  const int g = twin::thread_index() % kWarp / 4, t = twin::thread_index() % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = g + i / 2 * 8, column = 2 * t + i % 2;
    for (int k = 0; k < 16; ++k) {
      const int number_in_group = k % 8 / 2;
      c[i] += half_of<S>(of_lane(row % 8 * 4 + number_in_group)->a[row / 8 + k / 8 * 2], k % 2) *
              half_of<S>(of_lane(column * 4 + number_in_group)->b[k / 8], k % 2);
    }
  }
  twin::exchange(twin::Exchange::registers, 0);  // other lanes may read this lane's operands up to this point
}

template <bool transposed, class S>
void load_matrices(uint32_t (&registers)[4], const SharedArray<S>& from, int row_start) {
  if (row_start % 8 != 0) throw twin::KernelFault("ldmatrix reads rows that begin at multiples of 16 bytes");
  const auto starts = twin::exchange(twin::Exchange::address, row_start);
  const int g = twin::thread_index() % kWarp / 4, t = twin::thread_index() % 4;
  for (int i = 0; i < 4; ++i) {
    const auto element = [&](int row, int column) -> uint32_t {
      const S number = from[starts[8 * i + row] + column];
      return number.bits;
    };
    registers[i] =
        transposed ? element(2 * t, g) | element(2 * t + 1, g) << 16 : element(g, 2 * t) | element(g, 2 * t + 1) << 16;
  }
}

#endif

}  // namespace shardline::cuda
