// Tensors whose memory can be freed and reallocated while the tensor and its views, which share one storage, exist.
#pragma once
#include <ATen/core/Tensor.h>

namespace shardline {

// A tensor of `length` elements without memory.
at::Tensor empty_of_storage(int64_t length, const at::TensorOptions& options);
// Allocates uninitialised memory for the tensor's storage if it has none.
void take_storage(const at::Tensor& tensor);
void drop_storage(const at::Tensor& tensor);
bool has_storage(const at::Tensor& tensor);  // true for an empty tensor

}  // namespace shardline
