// Which tensors are in which safetensors file, and where. This depends only on the list of tensors, so all ranks know
// it without communication.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/model/model_spec.h"

namespace shardline {

struct FileTensor {
  std::string name;
  std::vector<int64_t> shape;
  at::ScalarType dtype;

  int64_t bytes() const;
};

// The tensors of a model's files: the parameters in model order, of this type, and the buffers; tied parameters appear
// once, at the parameter that has the values.
std::vector<FileTensor> file_tensors(const ModelSpec& spec, at::ScalarType dtype);

class FileLayout {
 public:
  static constexpr int64_t kMostBytes = 5'000'000'000;

  struct File {
    std::string name;
    std::string head;                 // its first bytes
    std::vector<FileTensor> tensors;  // in the order of their data, which follows the head without gaps
    int64_t bytes = 0;
  };
  struct Place {
    size_t file;
    int64_t begin;  // byte offset in the file
  };

  // stem: "model" gives model.safetensors or model-00001-of-00002.safetensors, ... A file has at most `most_bytes` of
  // data, unless a single tensor has more.
  FileLayout(std::vector<FileTensor> tensors, const std::string& stem, int64_t most_bytes = kMostBytes);

  const std::vector<File>& files() const { return files_; }
  const Place& place(const std::string& tensor) const { return places_.at(tensor); }
  int64_t total_bytes() const;
  std::string index_name() const { return stem_ + ".safetensors.index.json"; }
  std::string index() const;  // contents of the index; empty if there is only one file, which needs none

 private:
  std::string stem_;
  std::vector<File> files_;
  std::map<std::string, Place> places_;
};

}  // namespace shardline
