// A file of torch.save with a state dict: a zip archive, or the format before PyTorch 1.6. None of its code is run.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "models/files/tensor_file.h"
#include "models/files/torch_pickle.h"

namespace shardline {

class TorchFile : public TensorFile {
 public:
  // Checks that every tensor is inside its storage, and every storage inside the file, before anything is used. Throws
  // a DataError that names file, tensor, rule, values and what to do; it also throws for anything that is not a tensor.
  explicit TorchFile(const std::string& path);

 private:
  using Storages = std::map<std::string_view, std::string_view>;  // key -> bytes

  [[noreturn]] void fail(const std::string& what) const;
  void read_archive();
  void read_older_format();
  void add_tensors(const TorchStateDict& dict, const Storages& storages);
};

}  // namespace shardline
