// The number types for which loops and kernels exist.
#pragma once
#include "core/numbers/half_numbers.h"
#include "tensor_parallel/kernels/vector_kernel_math.h"

// For loops that exist once per type, or once per pair of types: the type of the layer and that of the residual stream.
// The latter is fp32 in half-precision layers if residuals are added in fp32.
#define SHARDLINE_FOR_TYPES(define) define(float) define(double) define(Bf16) define(Fp16)
#define SHARDLINE_FOR_TYPE_PAIRS(define)                                                                \
  define(float, float) define(double, double) define(Bf16, Bf16) define(Fp16, Fp16) define(Bf16, float) \
      define(Fp16, float)
