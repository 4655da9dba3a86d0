// Products of matrices so small that a call of oneDNN, with its preparation for every new size, takes longer than the
// product itself.
#pragma once
#include <cstdint>

namespace shardline {

// The length of the rows of b and c must be a multiple of this.
inline constexpr int64_t kProductLanes = 16;
inline int64_t padded_to_lanes(int64_t n) {
  return (n + kProductLanes - 1) / kProductLanes * kProductLanes;
}

// Factors and result of c [m, n] = a [m, k] b [k, n]. Strides are in elements; columns of b and c are contiguous, and n
// is a multiple of kProductLanes.
template <class T>
struct SmallProduct {
  const T* a;
  int64_t a_row, a_column;
  const T* b;
  int64_t b_row;
  T* c;
  int64_t c_row;
  int64_t m, n, k;
};
void multiply_small(const SmallProduct<float>& product);
void multiply_small(const SmallProduct<double>& product);

}  // namespace shardline
