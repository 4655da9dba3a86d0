// Reads a Hugging Face model directory: config.json, and model.safetensors or model.safetensors.index.json with its
// shards, or in their absence pytorch_model.bin, also in shards. A rank copies only its own slices, and only the pages
// that contain them are loaded.
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

// The paths of generation_config.json and the tokenizer's files that exist in `directory`.
std::vector<std::string> companion_files(const std::string& directory);

// How the files of a directory differ from the model, by tensor name.
struct NameReport {
  std::vector<std::string> missing;   // optional parameters that the files lack, which start with initial values
  std::vector<std::string> left_out;  // not used by the model: those of other heads, and buffers
  std::vector<std::string> grown;     // with rows for fewer words than the model has

  // Notes for users, with the first names of long lists. spec: the model's spec.
  std::vector<std::string> notes(const ModelSpec& spec) const;
};

class HfDirectory {
 public:
  static constexpr size_t kPieceBytes = 16 << 20;
  using Copied = std::function<void(int64_t bytes)>;

  // Throws DataError for an invalid directory, index or file. A directory with a config but without usable weights is
  // an error only when the weights are needed.
  explicit HfDirectory(const std::string& path);
  // For weights without a config, in files that are already open; `path` names them in messages.
  HfDirectory(const std::string& path, TensorFiles files);

  const std::string& path() const { return path_; }
  const nlohmann::json& config() const { return config_; }

  // Checks that every tensor that the model needs exists once, with its shape or with rows for fewer words, and that
  // every existing tensor is needed or may be ignored; otherwise throws one DataError with all names. Tied parameters
  // and buffers need no tensor, but may have one.
  NameReport check_names(const ModelSpec& spec) const;
  // Whether the files have all tensors of a parameter. After check_names, this is false only for those in its report.
  bool holds(const ParamSpec& param) const;
  // The size of dimension 0 in the files, for a parameter that they contain: smaller than the parameter's if the model
  // has more words.
  int64_t rows_of(const ParamSpec& param) const;

  // Copies the slice of rank t of t_degree into `destination` [param.local_shape(t, t_degree)], in its dtype. The
  // parameter must not be tied: a tied one has the values of the parameter it is tied to. Rows of words that the files
  // do not have are left unchanged. `copied` is called for each piece that is copied, with its number of bytes in
  // `destination`.
  void read(const ParamSpec& param, const std::string& full_name, int t, int t_degree, at::Tensor destination,
            const Copied& copied = {}) const;

  // A buffer of the model, in its dtype; undefined if the files do not have it. Throws a DataError if they have it with
  // another shape, or with numbers that its dtype cannot represent.
  at::Tensor buffer(const BufferSpec& buffer) const;

  // A cheap hash that distinguishes files, of config, names, sizes, headers and the first bytes of every tensor.
  std::string digest() const;

  std::vector<std::string> companion_files() const { return shardline::companion_files(path_); }

 private:
  struct Place {
    const TensorFile* file;
    std::string name;  // as spelled in the file
  };

  void require_weights() const;
  void index_tensors();
  const Place* find(const ParamSource& source) const;  // null if it exists under none of its names
  const Place* find(const BufferSpec& buffer) const;
  std::string mistake(const ParamSpec& param, const ParamSource& source, const Place& place) const;
  std::string mistake(const BufferSpec& buffer, const Place& place) const;

  std::string path_;
  nlohmann::json config_;
  TensorFiles files_;
  std::map<std::string, Place> tensors_;  // by name
};

}  // namespace shardline
