// A file of the safetensors format: u64 length of the header, header (JSON: name -> dtype, shape, data_offsets), data.
// The file is mapped, not read: a tensor is a view of it, and only pages that are read are loaded.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

class MappedFile;

inline constexpr uint64_t kLongestSafetensorsHeader = 100'000'000;  // bytes; the limit of the reference implementation

class SafetensorsFile {
 public:
  struct Entry {
    at::ScalarType dtype;
    std::vector<int64_t> shape;
    uint64_t begin, end;  // bytes within the data
  };

  // Checks the whole header against the file before anything is used; each inconsistency is a DataError that names
  // file, tensor, rule, values and what to do. The file must not be shortened while it is open.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  uint64_t size() const { return bytes_.size(); }
  std::string_view header() const { return header_; }
  const std::map<std::string, Entry>& tensors() const { return tensors_; }
  std::string_view bytes_of(const std::string& name) const;  // InvariantError when there is no such tensor

  // A view of the mapped file, which it keeps alive: read-only, writing to it is a segmentation fault. A copy if the
  // file does not place the tensor at a multiple of its element size.
  at::Tensor tensor(const std::string& name) const;
  // Removes the pages that were read of the tensor from this process's memory; it may be read again.
  void release(const std::string& name) const;

 private:
  void read_header();
  void check_data_is_indexed() const;
  const Entry& entry(const std::string& name) const;

  std::string path_;
  std::shared_ptr<const MappedFile> map_;
  std::string_view bytes_, header_, data_;
  std::map<std::string, Entry> tensors_;
};

// "BF16"; InvariantError for a dtype that the format (or our part of it) does not have.
std::string safetensors_dtype(at::ScalarType dtype);

// The first 8 bytes and the header of a file, padded to a multiple of 8 bytes, from its JSON text.
std::string safetensors_head(std::string json);

}  // namespace shardline
