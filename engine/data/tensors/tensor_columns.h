// The tensors of samples: rows of the tensors in a .safetensors file, or whole .npy files.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/model/microbatch.h"
#include "engine/data/source/row_file.h"
#include "models/files/tensor_file.h"

namespace shardline {

// Where the tensor of a sample is.
struct TensorPlace {
  std::string file;
  int64_t row = -1;  // the row of the column's tensor in a .safetensors file; -1: a .npy file
};

// Threads may use it at the same time.
class TensorColumns {
 public:
  explicit TensorColumns(std::vector<TensorColumn> columns) : columns_(std::move(columns)) {}

  int64_t size() const { return std::ssize(columns_); }
  std::string describe() const;  // "pixel_values [3, 224, 224]"
  // Returns where a row's tensors are, by column. Unless the file is .safetensors, a column contains the path of a .npy
  // file, relative to the row's file and in its folder. Throws DataError unless the tensors are there, with the sizes
  // of the columns.
  std::vector<TensorPlace> places(const DataRow& row) const;
  // The tensors of samples, one after the other: [samples, ...]. Throws DataError as above.
  at::Tensor read(int64_t column, std::span<const TensorPlace> places) const;
  const std::string& name(int64_t column) const { return columns_[column].name; }

 private:
  at::Tensor view(const TensorColumn& column, const TensorPlace& place) const;
  TensorFile open(const TensorPlace& place) const;

  std::vector<TensorColumn> columns_;
  mutable std::mutex opening_;
  mutable std::map<std::string, TensorFile> open_;  // .safetensors files
};

}  // namespace shardline
