#include "pipeline/activations/kept_storages.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>

namespace shardline {
namespace {

int64_t seen_bytes(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(), tensor.storage_offset());
}

// The first `bytes` of its storage.
at::Tensor as_bytes(const KeptStorage& kept) {
  const at::Tensor& tensor = kept.tensors[0];
  return at::empty({0}, tensor.options().dtype(at::kByte).requires_grad(false))
      .set_(tensor.storage(), 0, {kept.bytes}, {1});
}

void set_storage(const KeptStorage& kept, const at::Storage& storage) {
  for (const auto& tensor : kept.tensors) tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
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

MovedOut::MovedOut(std::vector<KeptStorage> storages, OffloadSpace& space) : storages_(std::move(storages)) {
  std::vector<at::Tensor> values;
  for (const auto& kept : storages_) values.push_back(as_bytes(kept));
  away_ = space.store(values);
  values.clear();
  for (const auto& kept : storages_) {
    const at::Device device = kept.tensors[0].device();
    set_storage(kept, at::Storage(at::Storage::use_byte_size_t(), 0, at::DataPtr(nullptr, device), nullptr, false));
  }
}

int64_t MovedOut::fetch() {
  return away_->fetch();
}

void MovedOut::take() {
  const auto values = away_->take();
  for (size_t i = 0; i < storages_.size(); ++i) set_storage(storages_[i], values[i].storage());
  storages_.clear();
}

}  // namespace shardline
