// A file of named tensors, whatever its format. It is mapped, not read: a tensor is a view of it, and only pages that
// are read are loaded. Formats derive from it; they have only a constructor, so that an object of theirs may be kept as
// a TensorFile.
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

// In elements; sizes of 0 count as 1.
std::vector<int64_t> row_major_strides(const std::vector<int64_t>& sizes);

class TensorFile {
 public:
  struct Entry {
    at::ScalarType dtype;
    std::vector<int64_t> shape, strides;  // strides: in elements
    uint64_t begin, end;                  // bytes within the data, from the first element to the last one
  };

  const std::string& path() const { return path_; }
  uint64_t size() const { return bytes_.size(); }
  std::string_view header() const { return header_; }  // the bytes that describe the tensors
  const std::map<std::string, Entry>& tensors() const { return tensors_; }
  std::string_view bytes_of(const std::string& name) const;  // InvariantError when there is no such tensor

  // A view of the mapped file, which it keeps alive: read-only, writing to it is a segmentation fault. Where the file
  // does not place the tensor at a multiple of its element size, the view is of bytes: uint8 [shape..., element size].
  at::Tensor view(const std::string& name) const;
  // The tensor itself: the same view, or a copy if that is of bytes.
  at::Tensor tensor(const std::string& name) const;
  // Removes the pages that were read of the tensor from this process's memory; it may be read again.
  void release(const std::string& name) const;

 protected:
  // Maps the file. It must not be shortened while it is open.
  explicit TensorFile(const std::string& path);
  // Bytes in memory; the name stands in messages where others have a path.
  TensorFile(std::string name, std::shared_ptr<const std::string> bytes);

  // A tensor in a storage, which is a part of data_: sizes, strides and the offset of its first element are at least 0.
  // Throws a DataError if it is not inside of the storage.
  Entry entry_in(std::string_view storage, const std::string& name, at::ScalarType dtype,
                 const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, int64_t offset) const;

  std::string path_;
  std::shared_ptr<const MappedFile> map_;   // null: the bytes are in memory
  std::shared_ptr<const void> owner_;       // of the bytes
  std::string_view bytes_, header_, data_;  // the whole file, and parts of it
  std::map<std::string, Entry> tensors_;

 private:
  const Entry& entry(const std::string& name) const;
};

// The elements of a tensor's view or of a part of it, which may be of bytes: then they are copied.
at::Tensor elements_of(const at::Tensor& view, at::ScalarType dtype);

// The bytes of all elements of a tensor; none if the sizes without those of 0 overflow 63 bits.
std::optional<uint64_t> bytes_of_shape(const std::vector<int64_t>& shape, at::ScalarType dtype);

// For messages about files in which something contradicts something else.
inline constexpr const char* kDamagedFile = "; the file is damaged or incomplete: download or write it again";
inline constexpr size_t kLongestTensorName = 1024;  // bytes; keeps hostile names away from the pattern matcher

}  // namespace shardline
