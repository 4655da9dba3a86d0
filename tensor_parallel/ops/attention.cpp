#include "tensor_parallel/ops/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/model/backward.h"
#include "core/model/work_notes.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/kernels/row_kernels.h"
#include "tensor_parallel/products/products.h"

namespace shardline {
namespace {

// The microbatch in the form that kernels take: samples of equal length, or one sequence that consists of segments.
struct Sequences {
  explicit Sequences(const Microbatch& microbatch)
      : are_samples(microbatch.is_rectangular),
        batch(are_samples ? microbatch.segments() : 1),
        length(are_samples ? microbatch.length() : microbatch.tokens()) {}
  bool are_samples;
  int64_t batch, length;
};

AttentionPattern pattern_of(const Microbatch& microbatch, const AttentionOptions& o) {
  return {o.causal, o.window, microbatch.is_rectangular ? std::vector<int64_t>() : microbatch.ends};
}

// [tokens, 3 * heads * head_dim] -> q, k, v, each [batch, heads, length, head_dim], strided.
std::array<at::Tensor, 3> split_qkv(const at::Tensor& qkv, const Sequences& sequences, const AttentionOptions& o) {
  return parts_of_qkv(qkv.view({sequences.batch, sequences.length, 3, o.heads, o.head_dim}));
}

// [batch, heads, length, head_dim] -> [tokens, heads * head_dim]
at::Tensor merge_heads(const at::Tensor& x) {
  return x.transpose(1, 2).reshape({x.size(0) * x.size(2), x.size(1) * x.size(3)});
}
at::Tensor split_heads(const at::Tensor& x, const Sequences& sequences, const AttentionOptions& o) {
  return x.view({sequences.batch, sequences.length, o.heads, o.head_dim}).transpose(1, 2);
}

// Whether torch's attention takes tensors like this one unchanged; otherwise they are converted.
bool runs_as_is(const at::Tensor& t, const AttentionOptions& o) {
  if (t.scalar_type() == wide_type(t)) return true;
  return !o.in_fp32 && (is_accelerator(t) || multiplies_natively(t.scalar_type()));
}

at::Tensor as_computed(const at::Tensor& t, const AttentionOptions& o) {
  return runs_as_is(t, o) ? t : t.to(wide_type(t));
}

// q, k, v: [batch, heads, new, head_dim]. k and v are added to the cache.
at::Tensor attention_with(KvCache& cache, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionOptions& o) {
  const auto [keys, values] = cache.append(k, v);
  const int64_t queries = q.size(2), seen = keys.size(2);
  SL_ASSERT(o.causal, "a cache requires causal attention");
  std::optional<at::Tensor> mask;  // query i is at position seen - queries + i
  const bool has_window = o.window > 0 && seen > o.window;
  if (has_window || (queries > 1 && seen > queries)) {
    const auto all = at::ones({queries, seen}, q.options().dtype(at::kBool));
    mask = all.tril(seen - queries);
    if (has_window) mask = mask->triu(seen - queries - o.window + 1);
  }
  return at::scaled_dot_product_attention(as_computed(q, o), as_computed(keys, o), as_computed(values, o), mask, 0.0,
                                          queries > 1 && !mask, o.scale);
}

at::Tensor cached_attention(const at::Tensor& qkv, const MicrobatchContext& context, const AttentionOptions& o) {
  const Microbatch& batch = *context.batch;
  const auto [q, k, v] = split_qkv(qkv, Sequences(batch), o);
  const auto& caches = context.cache->of_segments();
  if (caches.empty()) return merge_heads(attention_with(*context.cache, q, k, v, o)).to(qkv.scalar_type());
  SL_ASSERT(!batch.is_rectangular && std::cmp_equal(caches.size(), batch.segments()), caches.size(), " caches for ",
            batch.segments(), " segments");
  std::vector<at::Tensor> mixed;
  for (int64_t segment = 0, begin = 0; segment < batch.segments(); begin = batch.ends[segment++]) {
    const auto of_segment = [&, length = batch.ends[segment] - begin](const at::Tensor& rows) {
      return rows.narrow(2, begin, length);
    };
    mixed.push_back(attention_with(*caches[segment], of_segment(q), of_segment(k), of_segment(v), o));
  }
  return merge_heads(at::cat(mixed, 2)).to(qkv.scalar_type());
}

bool drops_out(const MicrobatchContext& context, const AttentionOptions& o) {
  return context.mode == Mode::train && o.dropout > 0;
}

AttentionDropout dropout_of(const MicrobatchContext& context, const AttentionOptions& o) {
  if (!drops_out(context, o)) return {};
  const uint32_t step = context.step;
  return {.seed = context.seed,
          .op = o.dropout_op,
          .step = step,
          .probability = o.dropout,
          .samples = context.batch->segment_samples,
          .first_places = context.batch->is_rectangular ? at::Tensor() : context.batch->segment_places,
          .first_head = o.first_head,
          .max_positions = o.max_positions};
}

// The fraction of all scores that the queries of a sequence see.
double seen_share(const Sequences& all, const AttentionOptions& o) {
  if (!o.causal) return 1;
  return o.window == 0 || o.window >= all.length ? 0.5 : 1.0 * o.window / all.length;
}

// The products of scores, one per head: [length, k] x [k, n]. A fused op skips masked scores and keeps scores in cache;
// if they are in memory, sweeps pass over them.
void note_core_product(const Sequences& all, const AttentionOptions& o, int64_t n, int64_t k) {
  WorkNotes* notes = work_notes();
  if (!notes) return;
  const bool fused = notes->shape.fused;
  const double count = all.batch * o.heads * (fused ? seen_share(all, o) : 1);
  notes->work.products.push_back({notes->phase, all.length, n, k, count, !fused, true});
}
void note_score_sweep(const Sequences& all, const AttentionOptions& o, double values, double masks) {
  if (work_notes() && !work_notes()->shape.fused)
    note_sweep(all.batch * all.length * o.heads * all.length, values, masks, 1, true);
}

void note_forward(const Sequences& all, const AttentionOptions& o) {
  note_sweep(3 * all.batch * all.length * o.heads * o.head_dim, 2);  // q, k and v in the order of heads
  note_core_product(all, o, all.length, o.head_dim);                 // scores
  note_core_product(all, o, o.head_dim, all.length);                 // their mix of values
  note_score_sweep(all, o, 2, 0);                                    // scale, mask, softmax
  note_score_sweep(all, o, 2, 1);                                    // dropout
}
void note_backward(const Sequences& all, const AttentionOptions& o) {
  note_core_product(all, o, all.length, o.head_dim);                              // gradient of the probabilities
  for (int i = 0; i < 3; ++i) note_core_product(all, o, o.head_dim, all.length);  // gradients of v, q and k
  if (work_notes() && work_notes()->shape.fused) note_core_product(all, o, all.length, o.head_dim);  // scores again
  note_score_sweep(all, o, 2, 1);                                                                    // dropout
  note_score_sweep(all, o, 3, 0);                                                                    // softmax
  note_sweep(3 * all.batch * all.length * o.heads * o.head_dim, 2);  // q, k and v side by side
}

// The result for an empty microbatch, or on a rank without heads.
at::Tensor empty_attention(const at::Tensor& qkv, const AttentionOptions& o) {
  return with_backward(at::zeros({qkv.size(0), o.heads * o.head_dim}, qkv.options().requires_grad(false)), {qkv}, {},
                       "SelfAttention",
                       [sizes = qkv.sizes().vec(), options = qkv.options()](const at::Tensor&, const SavedTensors&) {
                         return std::vector<at::Tensor>{at::zeros(sizes, options.requires_grad(false))};
                       });
}

// The attention computation of one microbatch.
class AttentionCore {
 public:
  AttentionCore(const at::Tensor& qkv, const MicrobatchContext& context, const AttentionOptions& options)
      : sequences_(*context.batch),
        pattern_(pattern_of(*context.batch, options)),
        options_(options),
        dropout_(dropout_of(context, options)) {}

  // Returns what gradient() needs: qkv, the result [tokens, heads * head_dim], and the log of the sums of exponentials.
  SavedTensors run(const at::Tensor& qkv) {
    note_forward(sequences_, options_);
    auto [mixed, log_sum_exp] = compute(qkv.detach());
    return {qkv.detach(), std::move(mixed), std::move(log_sum_exp)};
  }

  // Frees the memory of the result, even if the tensor has other owners.
  void drop(const at::Tensor& mixed) { mixed.storage().set_data_ptr_noswap(at::DataPtr(nullptr, mixed.device())); }

  // After drop(): recomputes the result in the same storage.
  void run_again(const at::Tensor& qkv, const at::Tensor& mixed) {
    at::Tensor again;
    std::tie(again, log_sum_exp_) = compute(qkv);
    SL_ASSERT(again.storage().nbytes() == mixed.storage().nbytes() && again.storage_offset() == 0);
    mixed.storage().set_data_ptr_noswap(again.storage().set_data_ptr(at::DataPtr(nullptr, again.device())));
  }

  at::Tensor gradient(const SavedTensors& saved, const at::Tensor& d_mixed) const {
    note_backward(sequences_, options_);
    const at::Tensor qkv = as_asked(saved[0]);
    const at::Tensor& log_sum_exp = saved.size() > 2 ? saved[2] : log_sum_exp_;
    const auto [q, k, v] = split_qkv(qkv, sequences_, options_);
    const auto out = split_heads(as_asked(saved[1]), sequences_, options_);
    const auto d_out = split_heads(as_asked(d_mixed.contiguous()), sequences_, options_);
    return attention_backward(d_out, q, k, v, out, log_sum_exp, score_scale(), dropout_, pattern_)
        .view(qkv.sizes())
        .to(saved[0].scalar_type());
  }

 private:
  ScoreScale score_scale() const { return {options_.scale, options_.score_divisor}; }

  // Our loops compute in fp32 anyway. A dry run of an accelerator runs them, but converts as the accelerator would.
  at::Tensor as_asked(const at::Tensor& t) const {
    const bool converts = options_.in_fp32 && (!runs_loops(t) || is_accelerator(t));
    return converts ? t.to(wide_type(t)) : t;
  }

  std::pair<at::Tensor, at::Tensor> compute(const at::Tensor& qkv) {
    at::NoGradGuard no_grad;
    const auto [q, k, v] = split_qkv(as_asked(qkv), sequences_, options_);
    const auto [out, log_sum_exp] = attention_forward(q, k, v, score_scale(), dropout_, pattern_);
    return {merge_heads(out.to(qkv.scalar_type())), log_sum_exp};
  }

  Sequences sequences_;
  AttentionPattern pattern_;
  AttentionOptions options_;
  AttentionDropout dropout_;
  at::Tensor log_sum_exp_;  // from run_again to gradient
};

}  // namespace

std::pair<at::Tensor, at::Tensor> KvCache::append(const at::Tensor& k, const at::Tensor& v) {
  const int64_t needed = length_ + k.size(2);
  if (!keys_.defined() || keys_.size(2) < needed) {
    auto sizes = k.sizes().vec();
    sizes[2] = std::max<int64_t>(needed, keys_.defined() ? 2 * keys_.size(2) : 64);
    auto keys = at::empty(sizes, k.options()), values = at::empty(sizes, v.options());
    if (length_ > 0) {
      keys.narrow(2, 0, length_).copy_(keys_.narrow(2, 0, length_));
      values.narrow(2, 0, length_).copy_(values_.narrow(2, 0, length_));
    }
    keys_ = keys;
    values_ = values;
  }
  keys_.narrow(2, length_, k.size(2)).copy_(k);
  values_.narrow(2, length_, v.size(2)).copy_(v);
  length_ = needed;
  return {keys_.narrow(2, 0, length_), values_.narrow(2, 0, length_)};
}

at::Tensor self_attention(const at::Tensor& qkv, const MicrobatchContext& context, const AttentionOptions& o) {
  if (qkv.numel() == 0) return empty_attention(qkv, o);
  if (context.cache) return cached_attention(qkv, context, o);
  const auto core = std::make_shared<AttentionCore>(qkv, context, o);
  const SavedTensors saved = core->run(qkv);
  return with_backward(saved[1], {qkv}, saved, "SelfAttention", [core](const at::Tensor& d_mixed, const auto& kept) {
    return std::vector<at::Tensor>{core->gradient(kept, d_mixed)};
  });
}

at::Tensor attend(const at::Tensor& qkv, const MicrobatchContext& context, const AttentionOptions& o,
                  const std::function<at::Tensor(const at::Tensor& mixed)>& use) {
  const bool drops = context.recompute_attention && at::GradMode::is_enabled() && !context.cache && qkv.numel() > 0;
  if (!drops) return use(self_attention(qkv, context, o));
  const auto core = std::make_shared<AttentionCore>(qkv, context, o);
  SavedTensors saved = core->run(qkv);
  saved.resize(2);
  const auto mixed =
      with_backward(saved[1], {qkv}, saved, "SelfAttention", [core](const at::Tensor& d_mixed, const auto& kept) {
        return std::vector<at::Tensor>{core->gradient(kept, d_mixed)};
      });
  const auto result = use(mixed);
  core->drop(mixed);
  return with_backward(result, {result}, saved, "RecomputeAttention",
                       [core](const at::Tensor& d_result, const SavedTensors& kept) {
                         core->run_again(kept[0], kept[1]);
                         return std::vector<at::Tensor>{d_result};
                       });
}

}  // namespace shardline
