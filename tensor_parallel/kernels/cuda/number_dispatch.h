// Maps the number types of a launch to those of a kernel.
#pragma once
#include <cstdint>
#include <stdexcept>

#include "core/alignment.h"
#include "core/numbers/half_numbers.h"
#include "tensor_parallel/kernels/cuda/cuda_launches.h"

namespace shardline::cuda {

inline int64_t bytes_of(Number type) {
  return type == Number::fp32 ? 4 : 2;
}

// Calls run(S{}).
template <class Run>
void with_number(Number type, const Run& run) {
  switch (type) {
    case Number::fp32:
      return run(float{});
    case Number::bf16:
      return run(Bf16{});
    case Number::fp16:
      return run(Fp16{});
  }
}

// Calls run(S{}, R{}) with the types of a layer and of the residual stream: equal, or fp32 for the stream of a
// half-precision layer.
template <class Run>
void with_numbers(Number layer, Number residual, const Run& run) {
  if (layer != residual && residual != Number::fp32)
    throw std::invalid_argument("the residual stream must have the layer's type or fp32");
  with_number(layer, [&](auto s) {
    if (layer == residual)
      run(s, s);
    else
      run(s, float{});
  });
}

// Whether rows of n numbers that start at these addresses can be read in groups of four.
template <class... Pointers>
bool in_fours(int64_t n, const Pointers*... start) {
  return n % 4 == 0 && (is_aligned(start, 16) && ...);
}

}  // namespace shardline::cuda
