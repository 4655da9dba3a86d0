// A file in safetensors format: u64 header length, header (JSON: name -> dtype, shape, data_offsets), data.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

#include "models/files/tensor_file.h"

namespace shardline {

inline constexpr uint64_t kLongestSafetensorsHeader = 100'000'000;  // bytes; the limit of the reference implementation

class SafetensorsFile : public TensorFile {
 public:
  // Checks the whole header against the file before anything is used. Each inconsistency is a DataError that names
  // file, tensor, rule, values and what to do.
  explicit SafetensorsFile(const std::string& path);

 private:
  void read_header();
  void check_data_is_indexed() const;
};

// Whether the format (or our part of it) has this dtype.
bool has_safetensors_dtype(at::ScalarType dtype);
// "BF16"; throws InvariantError for a dtype that the format does not have.
std::string safetensors_dtype(at::ScalarType dtype);

// The first 8 bytes and the header of a file, made from its JSON text and padded to a multiple of 8 bytes.
std::string safetensors_head(std::string json);

}  // namespace shardline
