// Rotary position embedding (Su et al. 2021, arXiv 2104.09864) in GPT-J's form: features 2i and 2i + 1 of a head are a
// point in the plane, rotated by position * 10000^(-2i / features). Products of a query and a key then depend on the
// distance between their positions.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <memory>
#include <mutex>
#include <vector>

#include "core/model/layer.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

// Cosines and sines of all angles, computed in float64 and rounded once (as GPT-J was trained) when a tensor first
// needs them; shared by all layers of a model.
class RotaryTable {
 public:
  RotaryTable(int64_t features, int64_t positions) : features_(features), positions_(positions) {}

  int64_t features() const { return features_; }  // per head
  int64_t positions() const { return positions_; }
  // [2, positions, features / 2], cosines before sines, for tensors like this one: on the same device, at least fp32.
  at::Tensor for_tensor(const at::Tensor& like) const;

 private:
  int64_t features_, positions_;
  mutable std::mutex mutex_;
  struct Table {
    at::Tensor values;
    c10::StreamId stream;  // the accelerator's stream that made it: other streams would have to wait for it
  };
  mutable std::vector<Table> tables_;
};

// Rotates the table's features, the first ones of each head, of every query and key in qkv [rows, 3 * heads *
// head_dim]. Works in place, also on the gradient, so the op that made qkv must not need it again. The rows are border
// rows; without sequence parallelism, all tokens.
at::Tensor rotated(const TensorParallel& tp, const at::Tensor& qkv, const Microbatch& batch, int64_t head_dim,
                   const std::shared_ptr<const RotaryTable>& table);

}  // namespace shardline
