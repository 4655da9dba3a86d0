// Reads a Hugging Face model directory: config.json and model.safetensors, or model.safetensors.index.json and its
// shards, or without these pytorch_model.bin, also in shards. A rank copies only its own slices; only their pages are
// loaded.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/model_spec.h"
#include "models/files/tensor_files.h"

namespace shardline {

// Paths of those among generation_config.json and the tokenizer's files that exist in `directory`.
std::vector<std::string> companion_files(const std::string& directory);

class HfDirectory {
 public:
  static constexpr size_t kPieceBytes = 16 << 20;
  using Copied = std::function<void(int64_t bytes)>;

  // base_prefix ("transformer."): files of a base model lack it, files of a model with a head have it. Names that
  // differ only in the prefix are the same tensor. Throws DataError for a broken directory, index or file; a directory
  // with a config but without usable weights is an error only when its weights are needed.
  explicit HfDirectory(const std::string& path, std::string base_prefix = "");

  const std::string& path() const { return path_; }
  const nlohmann::json& config() const { return config_; }

  // Checks that every tensor that the model needs exists with its shape, and that every tensor that exists is needed or
  // ignored by the spec; otherwise throws one DataError with all names. Tied parameters need no tensor, but may have
  // one.
  void check_names(const ModelSpec& spec) const;

  // Copies the slice of rank t of t_degree into `destination` [param.local_shape(t, t_degree)], in its dtype. The
  // parameter must not be tied: its values are those of the parameter that it is tied to. `copied` is called for each
  // piece, with its bytes of `destination`; together they are all of it.
  void read(const ParamSpec& param, const std::string& full_name, int t, int t_degree, at::Tensor destination,
            const Copied& copied = {}) const;

  // Distinguishes different files at low cost: config, names, sizes, headers and the first bytes of every tensor.
  std::string digest() const;

  std::vector<std::string> companion_files() const { return shardline::companion_files(path_); }

 private:
  struct Place {
    const TensorFile* file;
    std::string name;  // as spelled in the file
  };

  void require_weights() const;
  void index_tensors();
  std::string_view base_name(std::string_view name) const;
  const Place* find(const std::string& tensor) const;
  std::string mistake(const ParamSpec& param, const ParamSource& source, const Place& place) const;

  std::string path_, base_prefix_;
  nlohmann::json config_;
  TensorFiles files_;
  std::map<std::string, Place, std::less<>> tensors_;  // by name without the base prefix
};

}  // namespace shardline
