#include "core/memory/storage.h"

#include <ATen/ops/empty.h>

namespace shardline {

at::Tensor empty_of_storage(int64_t length, const at::TensorOptions& options) {
  auto tensor = at::empty({0}, options);
  const size_t bytes = length * tensor.itemsize();
  const at::Storage storage(at::Storage::use_byte_size_t(), bytes, at::DataPtr(nullptr, tensor.device()),
                            tensor.storage().allocator(), /*resizable=*/true);
  const std::vector<int64_t> size = {length}, stride = {1};
  tensor.set_(storage, 0, size, stride);
  return tensor;
}

void take_storage(const at::Tensor& tensor) {
  if (has_storage(tensor)) return;
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(storage->allocator()->allocate(storage->nbytes()));
}

void drop_storage(const at::Tensor& tensor) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, tensor.device()));
}

bool has_storage(const at::Tensor& tensor) {
  return tensor.numel() == 0 || tensor.storage().data() != nullptr;
}

}  // namespace shardline
