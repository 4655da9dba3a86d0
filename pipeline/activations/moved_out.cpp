#include "pipeline/activations/moved_out.h"

#include <ATen/ops/empty.h>

namespace shardline {
namespace {

// The first `bytes` bytes of the storage, as a tensor.
at::Tensor as_bytes(const KeptStorage& kept) {
  const at::Tensor& tensor = kept.tensors[0];
  return at::empty({0}, tensor.options().dtype(at::kByte).requires_grad(false))
      .set_(tensor.storage(), 0, {kept.bytes}, {1});
}

void set_storage(const KeptStorage& kept, const at::Storage& storage) {
  for (const auto& tensor : kept.tensors) tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
}

}  // namespace

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
