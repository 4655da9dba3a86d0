// Writes a model as a Hugging Face directory that transformers' from_pretrained opens. All ranks write their own slices
// straight into the same files, whose layout follows from the model alone; nothing is gathered.
//
//   one rank: create() | barrier | every rank: write() for what it holds, then flush() | barrier | one rank: finish()
//
// Until finish() the weights have names that nobody takes for a model.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/model_spec.h"

namespace shardline {

class HfWriter {
 public:
  static constexpr int64_t kShardBytes = 5'000'000'000;

  // Every rank gives the same arguments; nothing is touched yet. A tensor larger than max_shard_bytes gets a file of
  // its own. Tied parameters are not written, as transformers does not.
  HfWriter(std::string directory, const ModelSpec& spec, at::ScalarType dtype, int64_t max_shard_bytes = kShardBytes);
  ~HfWriter();
  HfWriter(const HfWriter&) = delete;
  HfWriter& operator=(const HfWriter&) = delete;

  int64_t total_bytes() const;  // of all weight files

  // Makes the directory and reserves the whole room; RunError, and nothing left behind, when there is not enough.
  void create();
  // Writes the slice of rank t of t_degree: local [param.local_shape(t, t_degree)], any device and dtype. Of a
  // parameter that several ranks hold whole, one rank is enough. RunError when the disk fails.
  void write(const ParamSpec& param, const std::string& full_name, int t, int t_degree, const at::Tensor& local);
  // Brings what this rank wrote onto the disk.
  void flush();
  // Gives the weights their names in place of an earlier model's, then writes config.json: `config` with its dtype set
  // to the weights'. `companions` are copied beside it.
  void finish(nlohmann::json config, const std::vector<std::string>& companions);

 private:
  struct Shard;
  struct Place {
    Shard* shard;
    int64_t begin;  // in the file, bytes
  };

  void lay_out(const ModelSpec& spec, int64_t max_shard_bytes);
  void remove_earlier_model() const;
  void write_index() const;

  std::string directory_;
  at::ScalarType dtype_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::map<std::string, Place> places_;  // by tensor
};

}  // namespace shardline
