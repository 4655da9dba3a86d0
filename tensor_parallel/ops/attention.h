// The attention core for this rank's heads. For half-precision q, k and v, the scores, their softmax and its sums are
// always fp32. On CPUs without a cache, products are fp32, too, and the result is rounded once (kernels.h). GPU
// kernels, and torch's attention, which is used with a cache, round probabilities to the type before they are
// multiplied with the values, unless the type is converted to fp32: on request (in_fp32), and for torch's attention on
// CPUs without instructions for it (products.h).
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

#include "core/model/layer.h"

namespace shardline {

// Keys and values of a prefix, for this rank's heads of one layer: [batch, heads, capacity, head_dim].
class KvCache {
 public:
  KvCache() = default;
  // Combines the caches of sequences of any lengths: segment i of the microbatch continues sequence i, whose cache has
  // a batch of 1. Such a microbatch is not rectangular.
  explicit KvCache(std::vector<KvCache*> of_segments) : of_segments_(std::move(of_segments)) {}
  const std::vector<KvCache*>& of_segments() const { return of_segments_; }

  // Appends k, v [batch, heads, new, head_dim] and returns views of everything so far.
  std::pair<at::Tensor, at::Tensor> append(const at::Tensor& k, const at::Tensor& v);
  int64_t length() const { return length_; }

 private:
  std::vector<KvCache*> of_segments_;
  at::Tensor keys_, values_;
  int64_t length_ = 0;
};

struct AttentionOptions {
  int64_t heads = 0;  // on this rank
  int64_t head_dim = 0;
  double scale = 1;           // multiplies the scores
  bool causal = true;         // whether a query sees only keys up to its own position
  int64_t window = 0;         // if not 0, a query sees the last `window` keys up to itself; requires causal
  double dropout = 0;         // drops probabilities, in training
  int64_t first_head = 0;     // this rank's first head among the model's: a key of the dropout mask
  int64_t max_positions = 0;  // the model's; also a key of the dropout mask
  uint32_t dropout_op = 0;
  // attention_in_fp32: half-precision q, k and v are converted, all of the attention runs in fp32, and its result and
  // its gradients are rounded once. Costs time only where the products would otherwise run in half precision.
  bool in_fp32 = false;
  // query_key_layer_scaling (Megatron): the block's number, counted from 1. Products of queries and keys are divided by
  // it before they are stored and multiplied by it inside the softmax, which changes only their range. Kernels that
  // keep their scores in fp32 registers, such as those for GPUs, ignore it. 1: off.
  double score_divisor = 1;
};

// qkv [tokens, 3 * heads * head_dim] -> [tokens, heads * head_dim]. With context.cache, queries also see the keys of
// the prefix, and the microbatch's own keys are appended to it.
at::Tensor self_attention(const at::Tensor& qkv, const MicrobatchContext& context, const AttentionOptions& options);

// use(self_attention(qkv)), where `use` needs the values of its argument again only in its backward pass. With
// context.recompute_attention, the attention keeps only qkv: its result and what its backward pass needs are released,
// and it runs again when the backward pass reaches the result of `use`.
at::Tensor attend(const at::Tensor& qkv, const MicrobatchContext& context, const AttentionOptions& options,
                  const std::function<at::Tensor(const at::Tensor& mixed)>& use);

}  // namespace shardline
