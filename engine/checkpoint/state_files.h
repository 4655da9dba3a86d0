// The files of a checkpoint that hold the optimizer's state.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "engine/checkpoint/manifest.h"
#include "models/files/tensor_files.h"

namespace shardline {

// Whether a checkpoint has an optimizer's state.
bool has_states(const Manifest& manifest);

class StateFiles {
 public:
  // Throws DataError for a broken index or file; a checkpoint without states is an error only when one is needed.
  explicit StateFiles(const std::string& checkpoint);

  // A view of the mapped file, read-only. Throws DataError unless the checkpoint has the tensor in this shape and in a
  // floating-point dtype.
  at::Tensor tensor(const std::string& name, at::IntArrayRef shape) const;

 private:
  std::string checkpoint_;
  TensorFiles files_;
  std::map<std::string, const TensorFile*> file_of_;
};

}  // namespace shardline
