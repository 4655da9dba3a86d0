// Tensors whose memory can be freed and allocated again while the tensor and its views exist, which share one storage.
#pragma once
#include <ATen/core/Tensor.h>

namespace shardline {

// A tensor of `length` elements without memory.
at::Tensor empty_of_storage(int64_t length, const at::TensorOptions& options);
// Allocates the memory that the tensor's storage lacks, uninitialised; does nothing if it has memory.
void take_storage(const at::Tensor& tensor);
void drop_storage(const at::Tensor& tensor);
bool has_storage(const at::Tensor& tensor);  // true for a tensor without elements

}  // namespace shardline
