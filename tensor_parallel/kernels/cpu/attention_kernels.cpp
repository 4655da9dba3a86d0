// A thread computes a block of queries of one head of a segment at a time, and holds only the scores of this block
// [queries, keys]. The backward pass recomputes the scores and the dropout mask. For half-precision tensors, a thread
// also holds the rows of one head in fp32.
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/model/announced_op.h"
#include "core/numbers/philox.h"
#include "tensor_parallel/kernels/cpu/dry_attention.h"
#include "tensor_parallel/kernels/cpu/small_product.h"
#include "tensor_parallel/kernels/kernel_table.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/kernels/number_types.h"
#include "tensor_parallel/kernels/row_kernels.h"
#include "tensor_parallel/products/products.h"

namespace shardline {
namespace {

constexpr int64_t kBlock = 64;  // queries
// Keys per product. A block of queries that sees more keys needs several products; thus the number of different
// products does not grow with the length (onednn/onednn.h).
constexpr int64_t kKeys = 1024;

// Replaces a row of scores by the probabilities of the keys, scaled and masked as needed to multiply them with the
// values. Returns the log of the sum of exponentials.
template <class T>
SHARDLINE_INLINE T drop_softmax_of(T* row, const uint8_t* keep, int64_t keys, T scale, T kept_scale) {
  T largest = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < keys; ++i) largest = row[i] > largest ? row[i] : largest;
#pragma omp simd
  for (int64_t i = 0; i < keys; ++i) row[i] = exponential((row[i] - largest) * scale);
  const T sum = ordered_sum<T>(keys, [=](int64_t i) SHARDLINE_INLINED { return row[i]; });
  const T factor = kept_scale / sum;
#pragma omp simd
  for (int64_t i = 0; i < keys; ++i) row[i] *= keep[i] ? factor : T(0);
  return largest * scale + std::log(sum);
}
SHARDLINE_VECTORISED float drop_softmax(float* row, const uint8_t* keep, int64_t keys, float scale, float kept_scale) {
  return drop_softmax_of(row, keep, keys, scale, kept_scale);
}
SHARDLINE_VECTORISED double drop_softmax(double* row, const uint8_t* keep, int64_t keys, double scale,
                                         double kept_scale) {
  return drop_softmax_of(row, keep, keys, scale, kept_scale);
}

// Replaces a row of scores by the masked probabilities, and the row of their gradients by the gradients of the scores.
// score_scale multiplies the stored scores, and scale the products of queries and keys; along is the sum of d_out * out
// over the row's features.
template <class T>
SHARDLINE_INLINE void softmax_gradient_of(T* row, T* gradient, const uint8_t* keep, int64_t keys, T score_scale,
                                          T scale, T kept_scale, T log_sum_exp, T along) {
#pragma omp simd
  for (int64_t i = 0; i < keys; ++i) {
    const T probability = exponential(row[i] * score_scale - log_sum_exp);
    const T factor = keep[i] ? kept_scale : T(0);
    row[i] = probability * factor;
    gradient[i] = probability * (gradient[i] * factor - along) * scale;
  }
}
SHARDLINE_VECTORISED void softmax_gradient(float* row, float* gradient, const uint8_t* keep, int64_t keys,
                                           float score_scale, float scale, float kept_scale, float log_sum_exp,
                                           float along) {
  softmax_gradient_of(row, gradient, keep, keys, score_scale, scale, kept_scale, log_sum_exp, along);
}
SHARDLINE_VECTORISED void softmax_gradient(double* row, double* gradient, const uint8_t* keep, int64_t keys,
                                           double score_scale, double scale, double kept_scale, double log_sum_exp,
                                           double along) {
  softmax_gradient_of(row, gradient, keep, keys, score_scale, scale, kept_scale, log_sum_exp, along);
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

// A segment of one sequence of the batch.
struct Run {
  int64_t sequence, begin, length;
  int64_t segment;  // number of the segment
};

std::vector<Run> runs_of(const at::Tensor& q, const AttentionPattern& pattern) {
  std::vector<Run> runs;
  if (pattern.ends.empty())
    for (int64_t i = 0; i < q.size(0); ++i) runs.push_back({i, 0, q.size(2), i});
  for (int64_t i = 0, begin = 0; i < std::ssize(pattern.ends); begin = pattern.ends[i++])
    runs.push_back({0, begin, pattern.ends[i] - begin, i});
  return runs;
}

int64_t longest_of(const std::vector<Run>& runs) {
  int64_t longest = 0;
  for (const Run& run : runs) longest = std::max(longest, run.length);
  return longest;
}

// Keys [begin, end), numbered within a segment.
struct Keys {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
};

Keys keys_of_query(const AttentionPattern& pattern, int64_t query, int64_t length) {
  const int64_t begin = pattern.window > 0 ? std::max<int64_t>(0, query + 1 - pattern.window) : 0;
  return {begin, pattern.causal ? query + 1 : length};
}

// A range of queries, numbered within a segment, and the keys that at least one of them sees.
struct Block {
  int64_t first, queries;
  Keys keys;
};

template <class Visit>
void for_blocks(const AttentionPattern& pattern, int64_t length, const Visit& visit) {
  for (int64_t first = 0; first < length; first += kBlock) {
    const int64_t queries = std::min(kBlock, length - first);
    visit(
        Block{first,
              queries,
              {keys_of_query(pattern, first, length).begin, keys_of_query(pattern, first + queries - 1, length).end}});
  }
}

// The mask of a block of queries, with one row of bytes per query.
class Mask {
 public:
  Mask(const AttentionDropout& dropout, const AttentionPattern& pattern, int64_t longest)
      : dropout_(dropout),
        pattern_(pattern),
        longest_(longest),
        drops_(dropout.probability > 0),
        keep_(kBlock * longest, 1) {}

  void make(const Run& run, int64_t head, const Block& block) {
    if (!drops_) return;
    const uint32_t sample = dropout_.samples.const_data_ptr<int64_t>()[run.segment];
    const int64_t start =
        dropout_.first_places.defined() ? dropout_.first_places.const_data_ptr<int64_t>()[run.segment] : 0;
    const RandomStream stream{dropout_.seed, dropout_.op, dropout_.step, sample};
    for (int64_t i = 0; i < block.queries; ++i) {
      const int64_t query = block.first + i;
      const Keys keys = keys_of_query(pattern_, query, run.length);
      const int64_t row = (dropout_.first_head + head) * dropout_.max_positions + start + query;
      random_keep(stream, row * dropout_.max_positions + start + keys.begin, keys.count(), 1 - dropout_.probability,
                  keep_.data() + i * longest_);
    }
  }
  // The bytes for the i-th query's keys.
  const uint8_t* row(int64_t i) const { return keep_.data() + i * longest_; }
  double kept_scale() const {
    if (!drops_) return 1;
    return dropout_.probability < 1 ? 1 / (1 - dropout_.probability) : 0;
  }

 private:
  const AttentionDropout& dropout_;
  const AttentionPattern& pattern_;
  int64_t longest_;
  bool drops_;
  std::vector<uint8_t> keep_;
};

// Calls visit(run, head) for every run and head, on all threads. It runs below autograd, because disabling autograd has
// no effect on other threads.
template <class Visit>
void for_heads(const std::vector<Run>& runs, int64_t heads, const Visit& visit) {
  at::parallel_for(0, std::ssize(runs) * heads, 1, [&](int64_t begin, int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (int64_t i = begin; i < end; ++i) visit(runs[i / heads], i % heads);
  });
}

at::Tensor head_of(const at::Tensor& t, const Run& run, int64_t head) {
  return t.select(0, run.sequence).select(0, head).narrow(0, run.begin, run.length);
}

// [batch, heads, length, head_dim], laid out like [tokens, heads * head_dim]
at::Tensor like_tokens(const at::Tensor& q, bool zero) {
  const std::array<int64_t, 4> sizes = {q.size(0), q.size(2), q.size(1), q.size(3)};
  return (zero ? at::zeros(sizes, q.options()) : at::empty(sizes, q.options())).transpose(1, 2);
}

at::Tensor with_dense_rows(const at::Tensor& t) {
  return t.stride(3) == 1 ? t : t.contiguous();
}

// The rows of a head in the type in which products are computed.
at::Tensor wide_head(const at::Tensor& t, const Run& run, int64_t head) {
  return head_of(t, run, head).to(wide_type(t));
}

// One head's part of a result. If the result is fp32 or wider, the part is written in place; otherwise it is held in
// fp32 until it is stored.
class HeadResult {
 public:
  HeadResult(const at::Tensor& t, const Run& run, int64_t head)
      : part_(head_of(t, run, head)),
        wide_(t.scalar_type() == wide_type(t) ? part_ : at::zeros(part_.sizes(), t.options().dtype(wide_type(t)))) {}
  at::Tensor rows(int64_t first, int64_t count) const { return wide_.narrow(0, first, count); }
  void store() {
    if (!wide_.is_same(part_)) part_.copy_(wide_);
  }

 private:
  at::Tensor part_, wide_;
};

// Returns room for one block of scores of one thread. The stride of its rows depends only on the length and is not a
// power of two.
at::Tensor score_room(const at::Tensor& q, int64_t length) {
  const int64_t stride = length / 16 * 16 + 16;
  return at::empty({kBlock, stride}, q.options().dtype(wide_type(q)));
}
at::Tensor scores_in(const at::Tensor& room, const Block& block) {
  return room.narrow(0, 0, block.queries).narrow(1, 0, block.keys.count());
}

// Sets a row's scores to 0 for keys that its query does not see.
template <class T>
void clear_unseen(T* row, const Block& block, const Keys& seen) {
  std::fill_n(row, seen.begin - block.keys.begin, T(0));
  std::fill_n(row + seen.end - block.keys.begin, block.keys.end - seen.end, T(0));
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

// ---- Segments of at most one block, such as short sentences: the rows of a head and the scores are side by side in a
// buffer of the thread, and multiply_small multiplies them.

// The index at which a head's rows of a segment begin in a tensor with dense rows; each next row is t.stride(2)
// elements further.
int64_t first_row(const at::Tensor& t, const Run& run, int64_t head) {
  SL_ASSERT(t.stride(3) == 1 || t.size(3) == 1, "rows must be dense: strides ", t.strides());
  return run.sequence * t.stride(0) + head * t.stride(1) + run.begin * t.stride(2);
}

// A matrix [rows, columns] whose rows are padded to `stride` elements.
template <class T>
struct PaddedMatrix {
  T* data;
  int64_t rows, columns, stride;

  PaddedMatrix(T*& room, int64_t rows_, int64_t columns_)
      : data(room), rows(rows_), columns(columns_), stride(padded_to_lanes(columns_)) {
    room += rows * stride;
  }
  static int64_t size(int64_t rows, int64_t columns) { return rows * padded_to_lanes(columns); }

  template <class S>
  void load(const S* from, int64_t from_stride) const {
    for (int64_t i = 0; i < rows; ++i) {
      const S* row = from + i * from_stride;
      T* to = data + i * stride;
      for (int64_t j = 0; j < columns; ++j) to[j] = widen(row[j]);
      std::fill(to + columns, to + stride, T(0));
    }
  }
  template <class S>
  void store(S* to, int64_t to_stride) const {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) to[i * to_stride + j] = narrow<S>(data[i * stride + j]);
  }
  void load_transposed(const PaddedMatrix& from) const {
    for (int64_t i = 0; i < rows; ++i) {
      T* to = data + i * stride;
      for (int64_t j = 0; j < columns; ++j) to[j] = from.data[j * from.stride + i];
      std::fill(to + columns, to + stride, T(0));
    }
  }
};

// c = a b, or a^T b
template <class T>
void multiply(const PaddedMatrix<T>& a, bool transposed, const PaddedMatrix<T>& b, const PaddedMatrix<T>& c) {
  multiply_small({a.data, transposed ? 1 : a.stride, transposed ? a.stride : 1, b.data, b.stride, c.data, c.stride,
                  c.rows, c.stride, transposed ? a.rows : a.columns});
}

template <class T>
T* short_room(int64_t numbers) {
  thread_local std::vector<T> room;
  if (std::ssize(room) < numbers) room.resize(numbers);
  return room.data();
}

// One head of such a segment, with numbers of type S.
template <class S>
class ShortSegment {
 public:
  using T = Wide<S>;
  ShortSegment(const Run& run, int64_t head, int64_t head_dim, const ScoreScale& scale, const AttentionDropout& dropout,
               const AttentionPattern& pattern)
      : run_(run),
        head_(head),
        length_(run.length),
        features_(head_dim),
        scale_(scale),
        pattern_(pattern),
        block_{0, run.length, {0, run.length}},
        mask_(dropout, pattern, run.length) {
    mask_.make(run, head, block_);
  }

  // lse: starts at the segment's first query.
  void forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out, T* lse) const {
    T* room = short_room<T>(4 * PaddedMatrix<T>::size(length_, features_) + PaddedMatrix<T>::size(features_, length_) +
                            PaddedMatrix<T>::size(length_, length_));
    const auto queries = loaded(room, q), keys = loaded(room, k), values = loaded(room, v);
    const auto scores = scores_of(room, queries, keys);
    for (int64_t i = 0; i < length_; ++i) {
      T* row = scores.data + i * scores.stride;
      const Keys here = keys_of_query(pattern_, i, length_);
      lse[i] = drop_softmax(row + here.begin, mask_.row(i), here.count(), T(scale_.scale * scale_.divisor),
                            T(mask_.kept_scale()));
      clear_unseen(row, block_, here);
    }
    const PaddedMatrix<T> result(room, length_, features_);
    multiply(scores, false, values, result);
    store(result, out);
  }

  void backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                const at::Tensor& out, const T* lse, const at::Tensor& dq, const at::Tensor& dk,
                const at::Tensor& dv) const {
    T* room =
        short_room<T>(6 * PaddedMatrix<T>::size(length_, features_) + 2 * PaddedMatrix<T>::size(features_, length_) +
                      2 * PaddedMatrix<T>::size(length_, length_));
    const auto queries = loaded(room, q), keys = loaded(room, k), values = loaded(room, v),
               d_result = loaded(room, d_out), result = loaded(room, out);
    const auto scores = scores_of(room, queries, keys), d_scores = products_of_rows(room, d_result, values);
    for (int64_t i = 0; i < length_; ++i) {
      T *row = scores.data + i * scores.stride, *gradient = d_scores.data + i * d_scores.stride;
      const Keys here = keys_of_query(pattern_, i, length_);
      const T along = dot(d_result.data + i * d_result.stride, result.data + i * result.stride, features_);
      softmax_gradient(row + here.begin, gradient + here.begin, mask_.row(i), here.count(),
                       T(scale_.scale * scale_.divisor), T(scale_.scale), T(mask_.kept_scale()), lse[i], along);
      clear_unseen(row, block_, here);
      clear_unseen(gradient, block_, here);
    }
    const PaddedMatrix<T> gradient(room, length_, features_);
    const auto give = [&](const at::Tensor& to, const PaddedMatrix<T>& a, bool transposed, const PaddedMatrix<T>& b) {
      multiply(a, transposed, b, gradient);
      store(gradient, to);
    };
    give(dq, d_scores, false, keys);
    give(dk, d_scores, true, queries);
    give(dv, scores, true, d_result);
  }

 private:
  PaddedMatrix<T> loaded(T*& room, const at::Tensor& t) const {
    const PaddedMatrix<T> rows(room, length_, features_);
    rows.load(data_of<S>(t) + first_row(t, run_, head_), t.stride(2));
    return rows;
  }
  void store(const PaddedMatrix<T>& rows, const at::Tensor& t) const {
    rows.store(mutable_data_of<S>(t) + first_row(t, run_, head_), t.stride(2));
  }
  // [length, length]: products of each row of a with each row of b.
  PaddedMatrix<T> products_of_rows(T*& room, const PaddedMatrix<T>& a, const PaddedMatrix<T>& b) const {
    const PaddedMatrix<T> turned(room, features_, length_), products(room, length_, length_);
    turned.load_transposed(b);
    multiply(a, false, turned, products);
    return products;
  }
  PaddedMatrix<T> scores_of(T*& room, const PaddedMatrix<T>& queries, const PaddedMatrix<T>& keys) const {
    const PaddedMatrix<T> scores = products_of_rows(room, queries, keys);
    if (scale_.divisor != 1)
      for (int64_t i = 0; i < length_ * scores.stride; ++i) scores.data[i] *= T(1 / scale_.divisor);
    return scores;
  }

  const Run& run_;
  int64_t head_, length_, features_;
  const ScoreScale& scale_;
  const AttentionPattern& pattern_;
  Block block_;
  Mask mask_;
};

bool is_short(const Run& run) {
  return run.length <= kBlock;
}

void check_pattern(const at::Tensor& q, const AttentionPattern& pattern) {
  SL_ASSERT(pattern.window == 0 || (pattern.window > 0 && pattern.causal), "a window of ", pattern.window);
  if (pattern.ends.empty()) return;
  SL_ASSERT(q.size(0) == 1 && std::ranges::is_sorted(pattern.ends) && pattern.ends.back() == q.size(2),
            pattern.ends.size(), " segments of sequences ", q.sizes());
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                     const ScoreScale& scale, const AttentionDropout& dropout,
                                                     const AttentionPattern& pattern) {
  SL_ANNOUNCE_OP("shardline::attention_forward", q, k, v);
  check_pattern(q, pattern);
  if (!runs_loops(q)) return kernels_for(q).attention_forward(q, k, v, scale, dropout, pattern);
  if (is_accelerator(q)) return dry_attention_forward(q, k, v, scale, dropout, pattern);
  const at::Tensor out = like_tokens(q, false);
  const at::Tensor log_sum_exp = at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(wide_type(q)));
  if (q.is_meta()) return {out, log_sum_exp};
  const std::vector<Run> runs = runs_of(q, pattern);
  const int64_t longest = longest_of(runs);
  with_wide_type_of(q, [&]<class T>(T) {
    T* all_lse = numbers<T>(log_sum_exp);
    for_heads(runs, q.size(1), [&](const Run& run, int64_t head) {
      T* lse = all_lse + (run.sequence * q.size(1) + head) * q.size(2) + run.begin;
      if (is_short(run))
        return with_type_of(q, [&]<class S>(S) {
          if constexpr (std::is_same_v<Wide<S>, T>)
            ShortSegment<S>(run, head, q.size(3), scale, dropout, pattern).forward(q, k, v, out, lse);
        });
      const at::Tensor queries = wide_head(q, run, head), keys = wide_head(k, run, head),
                       values = wide_head(v, run, head);
      HeadResult result(out, run, head);
      const at::Tensor room = score_room(q, longest);
      Mask mask(dropout, pattern, longest);
      for_blocks(pattern, run.length, [&](const Block& block) {
        const auto seen = [&](const at::Tensor& all) { return all.narrow(0, block.keys.begin, block.keys.count()); };
        const at::Tensor scores = scores_in(room, block);
        multiply_scores(scores, queries.narrow(0, block.first, block.queries), seen(keys), scale);
        mask.make(run, head, block);
        T* row = numbers<T>(room);
        for (int64_t i = 0; i < block.queries; ++i, row += room.stride(0)) {
          const Keys here = keys_of_query(pattern, block.first + i, run.length);
          lse[block.first + i] = drop_softmax(row + here.begin - block.keys.begin, mask.row(i), here.count(),
                                              scale.scale * scale.divisor, mask.kept_scale());
          clear_unseen(row, block, here);
        }
        multiply_values(result.rows(block.first, block.queries), scores, seen(values));
      });
      result.store();
    });
  });
  return {out, log_sum_exp};
}

at::Tensor attention_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& out, const at::Tensor& log_sum_exp, const ScoreScale& scale,
                              const AttentionDropout& dropout, const AttentionPattern& pattern) {
  SL_ANNOUNCE_OP("shardline::attention_backward", q, k, v);
  check_pattern(q, pattern);
  if (!runs_loops(q))
    return kernels_for(q).attention_backward(d_out, q, k, v, out, log_sum_exp, scale, dropout, pattern);
  if (is_accelerator(q)) return dry_attention_backward(d_out, q, k, v, out, log_sum_exp, scale, dropout, pattern);
  const int64_t head_dim = q.size(3);
  const at::Tensor dq = like_tokens(q, false), dk = like_tokens(q, true), dv = like_tokens(q, true);
  const at::Tensor d_rows = with_dense_rows(d_out), out_rows = with_dense_rows(out);
  if (q.is_meta()) return side_by_side(dq, dk, dv);
  const std::vector<Run> runs = runs_of(q, pattern);
  const int64_t longest = longest_of(runs);
  with_wide_type_of(q, [&]<class T>(T) {
    const T* all_lse = constant_numbers<T>(log_sum_exp);
    for_heads(runs, q.size(1), [&](const Run& run, int64_t head) {
      const T* lse = all_lse + (run.sequence * q.size(1) + head) * q.size(2) + run.begin;
      if (is_short(run))
        return with_type_of(q, [&]<class S>(S) {
          if constexpr (std::is_same_v<Wide<S>, T>)
            ShortSegment<S>(run, head, head_dim, scale, dropout, pattern)
                .backward(d_rows, q, k, v, out_rows, lse, dq, dk, dv);
        });
      const at::Tensor queries = wide_head(q, run, head), keys = wide_head(k, run, head),
                       values = wide_head(v, run, head), d_result = wide_head(d_rows, run, head),
                       result = wide_head(out_rows, run, head);
      HeadResult d_queries(dq, run, head), d_keys(dk, run, head), d_values(dv, run, head);
      const T *d_row = d_result.const_data_ptr<T>(), *out_row = result.const_data_ptr<T>();
      const at::Tensor room = score_room(q, longest), d_room = score_room(q, longest);
      Mask mask(dropout, pattern, longest);
      for_blocks(pattern, run.length, [&](const Block& block) {
        const auto seen = [&](const at::Tensor& all) { return all.narrow(0, block.keys.begin, block.keys.count()); };
        const at::Tensor asking = queries.narrow(0, block.first, block.queries);
        const at::Tensor d_part = d_result.narrow(0, block.first, block.queries);
        const at::Tensor scores = scores_in(room, block), d_scores = scores_in(d_room, block);
        multiply_scores(scores, asking, seen(keys), scale);
        multiply_scores(d_scores, d_part, seen(values), 1);
        mask.make(run, head, block);
        T *row = numbers<T>(room), *gradient = numbers<T>(d_room);
        for (int64_t i = 0; i < block.queries; ++i, row += room.stride(0), gradient += room.stride(0)) {
          const int64_t query = block.first + i;
          const Keys here = keys_of_query(pattern, query, run.length);
          const int64_t skipped = here.begin - block.keys.begin;
          const T along = dot(d_row + query * d_result.stride(0), out_row + query * result.stride(0), head_dim);
          softmax_gradient(row + skipped, gradient + skipped, mask.row(i), here.count(), scale.scale * scale.divisor,
                           scale.scale, mask.kept_scale(), lse[query], along);
          clear_unseen(row, block, here);
          clear_unseen(gradient, block, here);
        }
        multiply_values(d_queries.rows(block.first, block.queries), d_scores, seen(keys));
        add_to_keys(d_keys.rows(block.keys.begin, block.keys.count()), d_scores, asking);
        add_to_keys(d_values.rows(block.keys.begin, block.keys.count()), scores, d_part);
      });
      for (HeadResult* part : {&d_queries, &d_keys, &d_values}) part->store();
    });
  });
  return side_by_side(dq, dk, dv);
}

}  // namespace shardline
