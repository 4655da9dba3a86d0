// Causal attention. A thread computes a block of queries of one (sample, head) at a time, and the scores of this block
// [queries, keys] are the only ones that it holds. The backward pass recomputes the scores and the dropout mask. For
// half-precision tensors a thread also holds one head's rows in fp32.
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "core/device/accelerator.h"
#include "core/model/announced_op.h"
#include "core/numbers/philox.h"
#include "tensor_parallel/kernels/cpu/dry_attention.h"
#include "tensor_parallel/kernels/kernel_table.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/kernels/number_types.h"
#include "tensor_parallel/kernels/row_kernels.h"
#include "tensor_parallel/products/products.h"

namespace shardline {
namespace {

constexpr int64_t kBlock = 64;  // queries
// Keys of one product. A block of queries that sees more keys needs several products, so that the number of different
// products does not grow with the length (onednn/onednn.h).
constexpr int64_t kKeys = 1024;

// Replaces a row of scores by the probabilities of the keys up to the query, scaled and masked as they are multiplied
// with the values, and by 0 from there up to `width`. Returns the log of the sum of exponentials.
template <class T>
SHARDLINE_INLINE T drop_softmax_of(T* row, const uint8_t* keep, int64_t keys, int64_t width, T scale, T kept_scale) {
  T largest = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < keys; ++i) largest = row[i] > largest ? row[i] : largest;
#pragma omp simd
  for (int64_t i = 0; i < keys; ++i) row[i] = exponential((row[i] - largest) * scale);
  const T sum = ordered_sum<T>(keys, [=](int64_t i) SHARDLINE_INLINED { return row[i]; });
  const T factor = kept_scale / sum;
#pragma omp simd
  for (int64_t i = 0; i < keys; ++i) row[i] *= keep[i] ? factor : T(0);
  for (int64_t i = keys; i < width; ++i) row[i] = 0;
  return largest * scale + std::log(sum);
}
SHARDLINE_VECTORISED float drop_softmax(float* row, const uint8_t* keep, int64_t keys, int64_t width, float scale,
                                        float kept_scale) {
  return drop_softmax_of(row, keep, keys, width, scale, kept_scale);
}
SHARDLINE_VECTORISED double drop_softmax(double* row, const uint8_t* keep, int64_t keys, int64_t width, double scale,
                                         double kept_scale) {
  return drop_softmax_of(row, keep, keys, width, scale, kept_scale);
}

// Replaces a row of scores by the masked probabilities, and the row of their gradients by the gradients of the scores.
// score_scale multiplies the stored scores, scale the products of queries and keys; along is the sum of d_out * out
// over the row's features.
template <class T>
SHARDLINE_INLINE void softmax_gradient_of(T* row, T* gradient, const uint8_t* keep, int64_t keys, int64_t width,
                                          T score_scale, T scale, T kept_scale, T log_sum_exp, T along) {
#pragma omp simd
  for (int64_t i = 0; i < keys; ++i) {
    const T probability = exponential(row[i] * score_scale - log_sum_exp);
    const T factor = keep[i] ? kept_scale : T(0);
    row[i] = probability * factor;
    gradient[i] = probability * (gradient[i] * factor - along) * scale;
  }
  for (int64_t i = keys; i < width; ++i) row[i] = gradient[i] = 0;
}
SHARDLINE_VECTORISED void softmax_gradient(float* row, float* gradient, const uint8_t* keep, int64_t keys,
                                           int64_t width, float score_scale, float scale, float kept_scale,
                                           float log_sum_exp, float along) {
  softmax_gradient_of(row, gradient, keep, keys, width, score_scale, scale, kept_scale, log_sum_exp, along);
}
SHARDLINE_VECTORISED void softmax_gradient(double* row, double* gradient, const uint8_t* keep, int64_t keys,
                                           int64_t width, double score_scale, double scale, double kept_scale,
                                           double log_sum_exp, double along) {
  softmax_gradient_of(row, gradient, keep, keys, width, score_scale, scale, kept_scale, log_sum_exp, along);
}

template <class T>
SHARDLINE_INLINE T dot_of(const T* a, const T* b, int64_t n) {
  return ordered_sum<T>(n, [=](int64_t i) SHARDLINE_INLINED { return a[i] * b[i]; });
}
SHARDLINE_VECTORISED float dot(const float* a, const float* b, int64_t n) {
  return dot_of(a, b, n);
}
SHARDLINE_VECTORISED double dot(const double* a, const double* b, int64_t n) {
  return dot_of(a, b, n);
}

// The mask of a block of queries, with a row of `length` bytes for each.
class Mask {
 public:
  Mask(const AttentionDropout& dropout, int64_t length)
      : dropout_(dropout), length_(length), drops_(dropout.probability > 0), keep_(kBlock * length, 1) {}

  void make(int64_t sample, int64_t head, int64_t first, int64_t queries) {
    if (!drops_) return;
    const uint32_t number = dropout_.samples.const_data_ptr<int64_t>()[sample];
    const RandomStream stream{dropout_.seed, dropout_.op, dropout_.step, number};
    for (int64_t query = first; query < first + queries; ++query) {
      const int64_t row = (dropout_.first_head + head) * dropout_.max_positions + query;
      random_keep(stream, row * dropout_.max_positions, query + 1, 1 - dropout_.probability,
                  keep_.data() + (query - first) * length_);
    }
  }
  const uint8_t* row(int64_t i) const { return keep_.data() + i * length_; }
  double kept_scale() const {
    if (!drops_) return 1;
    return dropout_.probability < 1 ? 1 / (1 - dropout_.probability) : 0;
  }

 private:
  const AttentionDropout& dropout_;
  int64_t length_;
  bool drops_;
  std::vector<uint8_t> keep_;
};

struct Block {
  int64_t first, queries, keys;  // keys: those that its last query sees
};

template <class Visit>
void for_blocks(int64_t length, const Visit& visit) {
  for (int64_t first = 0; first < length; first += kBlock) {
    const int64_t queries = std::min(kBlock, length - first);
    visit(Block{first, queries, first + queries});
  }
}

// Calls visit(sample, head) for every sample and head of q, on all threads. It runs below autograd, because disabling
// autograd does not affect other threads.
template <class Visit>
void for_heads(const at::Tensor& q, const Visit& visit) {
  const int64_t heads = q.size(1);
  at::parallel_for(0, q.size(0) * heads, 1, [&](int64_t begin, int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (int64_t i = begin; i < end; ++i) visit(i / heads, i % heads);
  });
}

at::Tensor head_of(const at::Tensor& t, int64_t sample, int64_t head) {
  return t.select(0, sample).select(0, head);
}

// [batch, heads, length, head_dim], laid out like [tokens, heads * head_dim]
at::Tensor like_tokens(const at::Tensor& q, bool zero) {
  const std::array<int64_t, 4> sizes = {q.size(0), q.size(2), q.size(1), q.size(3)};
  return (zero ? at::zeros(sizes, q.options()) : at::empty(sizes, q.options())).transpose(1, 2);
}

at::Tensor with_dense_rows(const at::Tensor& t) {
  return t.stride(3) == 1 ? t : t.contiguous();
}

// A head's rows in the type in which products are computed.
at::Tensor wide_head(const at::Tensor& t, int64_t sample, int64_t head) {
  return head_of(t, sample, head).to(wide_type(t));
}

// A head's part of a result. If the result is fp32 or wider, the part is written in place; otherwise it is kept in fp32
// until it is stored.
class HeadResult {
 public:
  HeadResult(const at::Tensor& t, int64_t sample, int64_t head)
      : part_(head_of(t, sample, head)),
        wide_(t.scalar_type() == wide_type(t) ? part_ : at::zeros(part_.sizes(), t.options().dtype(wide_type(t)))) {}
  at::Tensor rows(int64_t first, int64_t count) const { return wide_.narrow(0, first, count); }
  void store() {
    if (!wide_.is_same(part_)) part_.copy_(wide_);
  }

 private:
  at::Tensor part_, wide_;
};

// Returns room for one block of scores of a thread. The stride of its rows depends only on the length and is not a
// power of two.
at::Tensor score_room(const at::Tensor& q) {
  const int64_t stride = q.size(2) / 16 * 16 + 16;
  return at::empty({kBlock, stride}, q.options().dtype(wide_type(q)));
}
at::Tensor scores_in(const at::Tensor& room, const Block& block) {
  return room.narrow(0, 0, block.queries).narrow(1, 0, block.keys);
}

template <class Visit>
void for_keys(int64_t keys, const Visit& visit) {
  for (int64_t first = 0; first < keys; first += kKeys) visit(first, std::min(kKeys, keys - first));
}

// scores [queries, keys] = queries keys^T
void multiply_scores(const at::Tensor& scores, const at::Tensor& queries, const at::Tensor& keys,
                     const ScoreScale& scale) {
  for_keys(keys.size(0), [&](int64_t first, int64_t count) {
    at::Tensor part = scores.narrow(1, first, count);
    const at::Tensor seen = keys.narrow(0, first, count).t();
    if (scale.divisor == 1)
      product_out(part, queries, seen, false);
    else
      at::addmm_out(part, part, queries, seen, 0, 1 / scale.divisor);
  });
}

// result [queries, head_dim] = scores values
void multiply_values(const at::Tensor& result, const at::Tensor& scores, const at::Tensor& values) {
  for_keys(values.size(0), [&](int64_t first, int64_t count) {
    product_out(result, scores.narrow(1, first, count), values.narrow(0, first, count), first > 0);
  });
}

// result [keys, head_dim] += scores^T rows
void add_to_keys(const at::Tensor& result, const at::Tensor& scores, const at::Tensor& rows) {
  for_keys(result.size(0), [&](int64_t first, int64_t count) {
    product_out(result.narrow(0, first, count), scores.narrow(1, first, count).t(), rows, true);
  });
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                     const ScoreScale& scale, const AttentionDropout& dropout) {
  SL_ANNOUNCE_OP("shardline::attention_forward", q, k, v);
  if (!runs_loops(q)) return kernels_for(q).attention_forward(q, k, v, scale, dropout);
  if (is_accelerator(q)) return dry_attention_forward(q, k, v, scale, dropout);
  const int64_t length = q.size(2);
  const at::Tensor out = like_tokens(q, false);
  const at::Tensor log_sum_exp = at::empty({q.size(0), q.size(1), length}, q.options().dtype(wide_type(q)));
  if (q.is_meta()) return {out, log_sum_exp};
  with_wide_type_of(q, [&]<class T>(T) {
    for_heads(q, [&](int64_t sample, int64_t head) {
      const at::Tensor queries = wide_head(q, sample, head), keys = wide_head(k, sample, head),
                       values = wide_head(v, sample, head);
      HeadResult result(out, sample, head);
      T* lse = numbers<T>(log_sum_exp) + (sample * q.size(1) + head) * length;
      const at::Tensor room = score_room(q);
      Mask mask(dropout, length);
      for_blocks(length, [&](const Block& block) {
        const at::Tensor scores = scores_in(room, block);
        multiply_scores(scores, queries.narrow(0, block.first, block.queries), keys.narrow(0, 0, block.keys), scale);
        mask.make(sample, head, block.first, block.queries);
        T* row = numbers<T>(room);
        for (int64_t i = 0; i < block.queries; ++i, row += room.stride(0))
          lse[block.first + i] = drop_softmax(row, mask.row(i), block.first + i + 1, block.keys,
                                              scale.scale * scale.divisor, mask.kept_scale());
        multiply_values(result.rows(block.first, block.queries), scores, values.narrow(0, 0, block.keys));
      });
      result.store();
    });
  });
  return {out, log_sum_exp};
}

at::Tensor attention_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& out, const at::Tensor& log_sum_exp, const ScoreScale& scale,
                              const AttentionDropout& dropout) {
  SL_ANNOUNCE_OP("shardline::attention_backward", q, k, v);
  if (!runs_loops(q)) return kernels_for(q).attention_backward(d_out, q, k, v, out, log_sum_exp, scale, dropout);
  if (is_accelerator(q)) return dry_attention_backward(d_out, q, k, v, out, log_sum_exp, scale, dropout);
  const int64_t length = q.size(2), head_dim = q.size(3);
  const at::Tensor dq = like_tokens(q, false), dk = like_tokens(q, true), dv = like_tokens(q, true);
  const at::Tensor d_rows = with_dense_rows(d_out), out_rows = with_dense_rows(out);
  if (q.is_meta()) return side_by_side(dq, dk, dv);
  with_wide_type_of(q, [&]<class T>(T) {
    for_heads(q, [&](int64_t sample, int64_t head) {
      const at::Tensor queries = wide_head(q, sample, head), keys = wide_head(k, sample, head),
                       values = wide_head(v, sample, head), d_result = wide_head(d_rows, sample, head),
                       result = wide_head(out_rows, sample, head);
      HeadResult d_queries(dq, sample, head), d_keys(dk, sample, head), d_values(dv, sample, head);
      const T* lse = constant_numbers<T>(log_sum_exp) + (sample * q.size(1) + head) * length;
      const T *d_row = d_result.const_data_ptr<T>(), *out_row = result.const_data_ptr<T>();
      const at::Tensor room = score_room(q), d_room = score_room(q);
      Mask mask(dropout, length);
      for_blocks(length, [&](const Block& block) {
        const at::Tensor seen_keys = keys.narrow(0, 0, block.keys), seen_values = values.narrow(0, 0, block.keys);
        const at::Tensor asking = queries.narrow(0, block.first, block.queries);
        const at::Tensor d_part = d_result.narrow(0, block.first, block.queries);
        const at::Tensor scores = scores_in(room, block), d_scores = scores_in(d_room, block);
        multiply_scores(scores, asking, seen_keys, scale);
        multiply_scores(d_scores, d_part, seen_values, 1);
        mask.make(sample, head, block.first, block.queries);
        T *row = numbers<T>(room), *gradient = numbers<T>(d_room);
        for (int64_t i = 0; i < block.queries; ++i, row += room.stride(0), gradient += room.stride(0)) {
          const int64_t query = block.first + i;
          const T along = dot(d_row + query * d_result.stride(0), out_row + query * result.stride(0), head_dim);
          softmax_gradient(row, gradient, mask.row(i), query + 1, block.keys, scale.scale * scale.divisor, scale.scale,
                           mask.kept_scale(), lse[query], along);
        }
        multiply_values(d_queries.rows(block.first, block.queries), d_scores, seen_keys);
        add_to_keys(d_keys.rows(0, block.keys), d_scores, asking);
        add_to_keys(d_values.rows(0, block.keys), scores, d_part);
      });
      for (HeadResult* part : {&d_queries, &d_keys, &d_values}) part->store();
    });
  });
  return side_by_side(dq, dk, dv);
}

}  // namespace shardline
