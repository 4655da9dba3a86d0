#include "core/memory/kept_storage.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>

namespace shardline {
namespace {

int64_t seen_bytes(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(), tensor.storage_offset());
}

}  // namespace

std::vector<KeptStorage> storages_of(const std::vector<at::Tensor>& tensors) {
  std::vector<KeptStorage> storages;
  for (const auto& tensor : tensors) {
    if (!tensor.defined() || tensor.storage().data() == nullptr) continue;
    const auto same = [&](const KeptStorage& kept) { return kept.tensors[0].is_alias_of(tensor); };
    auto found = std::find_if(storages.begin(), storages.end(), same);
    if (found == storages.end()) found = storages.emplace(found);
    found->tensors.push_back(tensor);
    found->bytes = std::max(found->bytes, seen_bytes(tensor));
  }
  return storages;
}

int64_t bytes_of(const std::vector<KeptStorage>& storages) {
  int64_t bytes = 0;
  for (const auto& storage : storages) bytes += storage.bytes;
  return bytes;
}

}  // namespace shardline
