#include "models/files/tensor_file.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/alignment.h"
#include "core/error.h"
#include "core/files/mapped_file.h"

namespace shardline {

std::vector<int64_t> row_major_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<int64_t>(sizes[d], 1);
  return strides;
}

TensorFile::TensorFile(const std::string& path)
    : path_(path), map_(std::make_shared<const MappedFile>(path)), bytes_(map_->bytes()) {}

const TensorFile::Entry& TensorFile::entry(const std::string& name) const {
  const auto found = tensors_.find(name);
  SL_ASSERT(found != tensors_.end(), path_, " has no tensor ", name);
  return found->second;
}

std::string_view TensorFile::bytes_of(const std::string& name) const {
  const auto& found = entry(name);
  return data_.substr(found.begin, found.end - found.begin);
}

at::Tensor TensorFile::view(const std::string& name) const {
  const auto& found = entry(name);
  const auto bytes = bytes_of(name);
  if (bytes.empty()) return at::empty(found.shape, found.dtype);
  const auto mapped = [&](const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, at::ScalarType type) {
    return at::from_blob(
        const_cast<char*>(bytes.data()), sizes, strides, [map = map_](void*) {}, type);
  };
  const int64_t element = c10::elementSize(found.dtype);
  if (is_aligned(bytes.data(), element)) return mapped(found.shape, found.strides, found.dtype);
  auto sizes = found.shape, strides = found.strides;
  for (auto& stride : strides) stride *= element;
  sizes.push_back(element);
  strides.push_back(1);
  return mapped(sizes, strides, at::kByte);
}

at::Tensor TensorFile::tensor(const std::string& name) const {
  return elements_of(view(name), entry(name).dtype);
}

void TensorFile::release(const std::string& name) const {
  map_->release(bytes_of(name));
}

at::Tensor elements_of(const at::Tensor& view, at::ScalarType dtype) {
  if (view.scalar_type() == dtype) return view;
  return view.clone(at::MemoryFormat::Contiguous).view(dtype).squeeze(-1);
}

std::optional<uint64_t> bytes_of_shape(const std::vector<int64_t>& shape, at::ScalarType dtype) {
  uint64_t bytes = c10::elementSize(dtype);
  bool is_empty = false;
  for (const auto size : shape) {
    is_empty |= size == 0;
    if (__builtin_mul_overflow(bytes, uint64_t(std::max<int64_t>(size, 1)), &bytes)) return {};
  }
  if (std::cmp_greater(bytes, std::numeric_limits<int64_t>::max())) return {};
  return is_empty ? 0 : bytes;
}

}  // namespace shardline
