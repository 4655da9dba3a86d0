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
    : path_(path), map_(std::make_shared<const MappedFile>(path)), owner_(map_), bytes_(map_->bytes()) {}

TensorFile::TensorFile(std::string name, std::shared_ptr<const std::string> bytes)
    : path_(std::move(name)), owner_(bytes), bytes_(*bytes) {}

const TensorFile::Entry& TensorFile::entry(const std::string& name) const {
  const auto found = tensors_.find(name);
  SL_ASSERT(found != tensors_.end(), path_, " has no tensor ", name);
  return found->second;
}

std::string_view TensorFile::bytes_of(const std::string& name) const {
  const auto& found = entry(name);
  return data_.substr(found.begin, found.end - found.begin);
}

TensorFile::Entry TensorFile::entry_in(std::string_view storage, const std::string& name, at::ScalarType dtype,
                                       const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
                                       int64_t offset) const {
  const auto fail = [&](const std::string& what) {
    throw DataError(cat(path_, ": tensor ", name, ": ", what, kDamagedFile));
  };
  const auto size = bytes_of_shape(shape, dtype);
  if (!size) fail(cat("the sizes of ", at::IntArrayRef(shape), " overflow 64 bits"));
  Entry entry{dtype, shape, strides, 0, 0};
  if (*size == 0) return entry;
  const uint64_t element = c10::elementSize(dtype), elements = storage.size() / element;
  int64_t last = offset;  // index of the farthest element in the storage
  bool overflows = false;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) entry.strides[d] = 1;  // has no effect, and may be any number
    int64_t steps = 0;
    overflows |= __builtin_mul_overflow(shape[d] - 1, entry.strides[d], &steps);
    overflows |= __builtin_add_overflow(last, steps, &last);
  }
  if (overflows || static_cast<uint64_t>(last) >= elements)
    fail(cat("sizes ", at::IntArrayRef(shape), " and strides ", at::IntArrayRef(strides), " from element ", offset,
             " must stay in the storage, which has ", elements, " elements"));
  const uint64_t begin = storage.data() - data_.data();
  entry.begin = begin + offset * element;
  entry.end = begin + (last + 1) * element;
  return entry;
}

at::Tensor TensorFile::view(const std::string& name) const {
  const auto& found = entry(name);
  const auto bytes = bytes_of(name);
  if (bytes.empty()) return at::empty(found.shape, found.dtype);
  const auto mapped = [&](const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, at::ScalarType type) {
    return at::from_blob(
        const_cast<char*>(bytes.data()), sizes, strides, [owner = owner_](void*) {}, type);
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
  if (map_) map_->release(bytes_of(name));
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
