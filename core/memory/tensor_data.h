// Access to a tensor's memory as an array of bytes or of number types that ATen does not know.
#pragma once
#include <ATen/core/Tensor.h>

namespace shardline {

// Pointer to the first element; null for an undefined tensor.
template <class T>
const T* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(tensor.const_data_ptr()) : nullptr;
}
template <class T>
T* mutable_data_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr;
}

}  // namespace shardline
