// Writes a model as a Hugging Face directory that transformers' from_pretrained opens. All ranks write their own slices
// directly to the same files, whose layout depends only on the model; nothing is gathered.
//
//   one rank: create() | barrier | every rank: write() for what it holds, then flush() | barrier | one rank: finish()
//
// create() needs no values, so a training run can call it before its first step: then everything but the weights is on
// disk, and disk space for the weights is reserved. Until finish(), all files have names that cannot be mistaken for a
// model, and an earlier model in the directory stays intact. finish() removes the earlier model and then renames the
// files: if it is interrupted, the directory has no config.json and thus no model.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/disk_file.h"
#include "core/model/model_spec.h"
#include "models/files/file_layout.h"

namespace shardline {

// The contents of config.json for weights of this type.
std::string config_text(nlohmann::json config, at::ScalarType dtype);

class HfWriter {
 public:
  static constexpr int64_t kPieceBytes = 64 << 20;
  using Written = std::function<void(int64_t bytes)>;

  // All ranks must pass the same arguments; nothing is changed yet. most_bytes: see FileLayout. Like transformers, it
  // does not write tied parameters.
  HfWriter(std::string directory, const ModelSpec& spec, at::ScalarType dtype,
           int64_t most_bytes = FileLayout::kMostBytes);
  ~HfWriter();
  HfWriter(const HfWriter&) = delete;
  HfWriter& operator=(const HfWriter&) = delete;

  int64_t total_bytes() const { return layout_.total_bytes(); }  // size of all weight files

  // Creates the directory and the files. config.json: `config` with its dtype set to that of the weights. companions:
  // contents of the directory's other files, by name. If there is not enough space for all of them, throws RunError and
  // leaves none behind. When called again, restores files removed in the meantime and leaves the rest unchanged.
  void create(const nlohmann::json& config, const std::map<std::string, std::string>& companions);
  void discard() const;  // removes what create() made; never throws

  // Writes the slice of rank t of t_degree: local [param.local_shape(t, t_degree)], any device and dtype. If several
  // ranks hold a parameter whole, only one of them needs to write it. Throws RunError if the disk fails. `written` is
  // called after each piece of at most kPieceBytes with its number of bytes; up to about as many bytes are in memory
  // and not yet on disk.
  void write(const ParamSpec& param, const std::string& full_name, int t, int t_degree, const at::Tensor& local,
             const Written& written = {});
  // Writes all of a buffer, from a tensor of its shape and dtype. Only one rank needs to.
  void write(const BufferSpec& buffer, const at::Tensor& values, const Written& written = {});
  // Flushes to disk what this rank wrote. After finish(), another model can be written, starting with create().
  void flush();
  // Removes an earlier model's config.json and weights, then gives the files their final names, config.json last. Must
  // be called by the rank that called create(). Throws RunError if the disk fails.
  void finish();
  // Where the weights are before finish(), on the rank that called create().
  std::vector<std::string> unfinished_weights() const;

 private:
  void write_bytes(size_t file, int64_t offset, std::string_view bytes, const Written& written);
  void remove_earlier_model() const;
  std::string path_of(const std::string& name) const;
  std::string unfinished(const std::string& name) const;

  std::string directory_;
  at::ScalarType dtype_;
  FileLayout layout_;
  std::vector<std::optional<DiskFile>> open_;  // by file of the layout, on ranks that write
  std::vector<std::string> small_files_;       // those written by create(): all but the weights
  bool created_ = false;                       // whether create() has succeeded
  int64_t unsynced_bytes_ = 0;
};

}  // namespace shardline
