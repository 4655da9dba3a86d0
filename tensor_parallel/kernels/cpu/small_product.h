// Products of matrices that are so small that a call of oneDNN, and its preparation for every new size, take longer
// than the product itself.
#pragma once
#include <cstdint>

namespace shardline {

// Rows of b and c are as long as a multiple of this.
inline constexpr int64_t kProductLanes = 16;
inline int64_t padded_to_lanes(int64_t n) {
  return (n + kProductLanes - 1) / kProductLanes * kProductLanes;
}

// Factors and result of c [m, n] = a [m, k] b [k, n]: strides in elements, those of the columns of b and c are 1, and n
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
