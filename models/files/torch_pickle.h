// The pickle of a state dict as written by torch.save: which tensors there are, and where they are in which storages.
// The storages themselves are outside the pickle.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

struct TorchStorage {
  at::ScalarType dtype;
  uint64_t elements;
};

struct TorchTensor {
  std::string_view storage;  // its key
  int64_t offset;            // elements
  std::vector<int64_t> shape, strides;
};

// Tensors may share a storage. Texts are views of the pickle.
struct TorchStateDict {
  std::map<std::string_view, TorchStorage> storages;  // by key
  std::map<std::string, TorchTensor> tensors;         // by name
};

// Takes the pickle at the front of `bytes`. Sizes, strides and offsets are not negative, but otherwise unchecked.
// Throws a DataError that begins with `file` for anything but a dict of tensors and parameters.
TorchStateDict read_state_dict(std::string_view& bytes, const std::string& file);

}  // namespace shardline
