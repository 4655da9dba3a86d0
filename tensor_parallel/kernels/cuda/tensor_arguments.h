// Converts tensors to launch arguments.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/cuda/current_stream.h"
#include "core/error.h"
#include "tensor_parallel/kernels/cuda/cuda_launches.h"

namespace shardline::cuda {

inline bool has_kernels(const at::Tensor& t) {
  const at::ScalarType type = t.scalar_type();
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

inline Number number_of(at::ScalarType type) {
  SL_ASSERT(type == at::kFloat || type == at::kBFloat16 || type == at::kHalf, "no kernel for ", type);
  return type == at::kFloat ? Number::fp32 : type == at::kBFloat16 ? Number::bf16 : Number::fp16;
}
inline Number number_of(const at::Tensor& t) {
  return number_of(t.scalar_type());
}

// The address of a contiguous tensor's data; null for an undefined tensor.
inline const void* read(const at::Tensor& t) {
  if (!t.defined()) return nullptr;
  SL_ASSERT(t.is_contiguous(), "a kernel needs contiguous tensors; sizes ", t.sizes(), ", strides ", t.strides());
  return t.const_data_ptr();
}
inline void* written(const at::Tensor& t) {
  if (!t.defined()) return nullptr;
  SL_ASSERT(t.is_contiguous(), "a kernel needs contiguous tensors; sizes ", t.sizes(), ", strides ", t.strides());
  return t.mutable_data_ptr();
}
template <class T>
const T* read_as(const at::Tensor& t) {
  SL_ASSERT(!t.defined() || t.dtype() == caffe2::TypeMeta::Make<T>(), "a kernel reads ", t.scalar_type());
  return static_cast<const T*>(read(t));
}
template <class T>
T* written_as(const at::Tensor& t) {
  SL_ASSERT(!t.defined() || t.dtype() == caffe2::TypeMeta::Make<T>(), "a kernel writes ", t.scalar_type());
  return static_cast<T*>(written(t));
}

}  // namespace shardline::cuda
