// Memory of a tensor that comes and goes while the tensor and its views stay: they share one storage.
#pragma once
#include <ATen/core/Tensor.h>

namespace shardline {

// A tensor of `length` elements without memory.
at::Tensor empty_of_storage(int64_t length, const at::TensorOptions& options);
// Gives its storage the memory it lacks, uninitialised; nothing happens where it has some.
void take_storage(const at::Tensor& tensor);
void drop_storage(const at::Tensor& tensor);
bool has_storage(const at::Tensor& tensor);  // a tensor of no elements has

}  // namespace shardline
