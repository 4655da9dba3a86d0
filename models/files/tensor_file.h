// A file of named tensors in any format. It is mapped, not read: a tensor is a view of it, and only pages that are
// accessed are loaded. Formats derive from it and add only a constructor, so that their objects may be kept as a
// TensorFile.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

class MappedFile;

// Strides in elements; sizes of 0 count as 1.
std::vector<int64_t> row_major_strides(const std::vector<int64_t>& sizes);

class TensorFile {
 public:
  struct Entry {
    at::ScalarType dtype;
    std::vector<int64_t> shape, strides;  // strides: in elements
    uint64_t begin, end;                  // byte offsets in the data, from the first element to the end of the last one
  };

  const std::string& path() const { return path_; }
  uint64_t size() const { return bytes_.size(); }
  std::string_view header() const { return header_; }  // the bytes that describe the tensors
  const std::map<std::string, Entry>& tensors() const { return tensors_; }
  std::string_view bytes_of(const std::string& name) const;  // throws InvariantError if the tensor does not exist

  // A view of the mapped file, which it keeps alive: read-only, so writing to it is a segmentation fault. If the
  // tensor's file offset is not a multiple of its element size, the view is of bytes: uint8 [shape..., element size].
  at::Tensor view(const std::string& name) const;
  // The tensor itself: the view, or a copy if the view is of bytes.
  at::Tensor tensor(const std::string& name) const;
  // Drops the tensor's pages from this process's memory; they may be read again.
  void release(const std::string& name) const;

 protected:
  // Maps the file. It must not be truncated while it is open.
  explicit TensorFile(const std::string& path);
  // For bytes in memory; in messages, `name` takes the place of a path.
  TensorFile(std::string name, std::shared_ptr<const std::string> bytes);

  // A tensor in a storage, which is a part of data_. Sizes, strides and the offset of its first element must be at
  // least 0. Throws a DataError if the tensor is not inside the storage.
  Entry entry_in(std::string_view storage, const std::string& name, at::ScalarType dtype,
                 const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, int64_t offset) const;

  std::string path_;
  std::shared_ptr<const MappedFile> map_;   // null: the bytes are in memory
  std::shared_ptr<const void> owner_;       // owns the bytes
  std::string_view bytes_, header_, data_;  // the whole file, and two parts of it
  std::map<std::string, Entry> tensors_;

 private:
  const Entry& entry(const std::string& name) const;
};

// The elements of (a part of) a tensor's view; if the view is of bytes, they are copied.
at::Tensor elements_of(const at::Tensor& view, at::ScalarType dtype);

// The size in bytes of all elements of a tensor; none if the product of the nonzero sizes overflows 63 bits.
std::optional<uint64_t> bytes_of_shape(const std::vector<int64_t>& shape, at::ScalarType dtype);

// For messages about files that contradict themselves.
inline constexpr const char* kDamagedFile = "; the file is damaged or incomplete: download or write it again";
inline constexpr size_t kLongestTensorName = 1024;  // bytes; protects pattern matching from very long names

}  // namespace shardline
