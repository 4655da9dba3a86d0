#include "engine/generate/generator.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <deque>
#include <numeric>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/numbers/philox.h"
#include "tensor_parallel/ops/attention.h"

namespace shardline {
namespace {

constexpr uint32_t kSamplingOp = 65534;  // no dropout has this number

}  // namespace

int64_t sample_token(const at::Tensor& logits, const Sampling& sampling, int64_t sequence, int64_t position) {
  if (sampling.temperature == 0) return logits.argmax().item<int64_t>();
  auto [sorted, order] =
      at::sort(logits.to(at::kDouble) / sampling.temperature, /*stable=*/true, -1, /*descending=*/true);
  const auto probabilities = at::softmax(sorted, 0).contiguous();
  const auto* p = probabilities.const_data_ptr<double>();
  const int64_t limit = sampling.top_k > 0 ? std::min(sampling.top_k, logits.numel()) : logits.numel();
  const double wanted = sampling.top_p * std::accumulate(p, p + limit, 0.0);
  int64_t kept = 0;
  double mass = 0;
  while (kept < limit && (kept == 0 || mass < wanted)) mass += p[kept++];
  const uint32_t sample = sequence;
  const uint32_t word = random_word({.seed = sampling.seed, .op = kSamplingOp, .step = 0, .sample = sample}, position);
  double left = (word + 0.5) / 4294967296.0 * mass;
  int64_t choice = 0;
  while (choice + 1 < kept && left >= p[choice]) left -= p[choice++];
  return order[choice].item<int64_t>();
}

std::vector<int32_t> generate(RankTrainer& model, const ModelSpec& spec, const std::vector<int64_t>& prompt,
                              int64_t max_new, std::optional<int32_t> eos, const Sampling& sampling, int64_t sequence,
                              bool use_cache) {
  if (prompt.empty()) throw ConfigError("a prompt needs at least one token");
  if (std::ssize(prompt) >= spec.max_positions)
    throw ConfigError(cat("a prompt of ", prompt.size(), " tokens leaves no room in the model's ", spec.max_positions,
                          " positions; shorten it"));
  for (size_t i = 0; i < prompt.size(); ++i)
    if (prompt[i] < 0 || prompt[i] >= spec.vocab_size)
      throw ConfigError(cat("token ", i, " of the prompt has the id ", prompt[i], ", but the model's vocabulary has ",
                            spec.vocab_size, " entries; use the model's own tokenizer"));
  std::deque<KvCache> caches(spec.layers.size());
  std::vector<KvCache*> by_layer;
  if (use_cache)
    for (auto& cache : caches) by_layer.push_back(&cache);

  std::vector<int64_t> ids = prompt;
  std::vector<int32_t> made;
  size_t done = 0;  // positions that the caches hold
  while (std::ssize(made) < max_new && std::ssize(ids) < spec.max_positions) {
    const std::vector<int64_t> fresh(ids.begin() + done, ids.end());
    const auto logits = model.next_logits(at::tensor(fresh, at::kLong).unsqueeze(0), done, by_layer);
    if (use_cache) done = ids.size();
    const int64_t sampled =
        sample_token(on_host(logits[0], "logits of the next token"), sampling, sequence, ids.size());
    const int64_t next = model.of_first_rank(sampled);
    ids.push_back(next);
    made.push_back(next);
    if (eos && next == *eos) break;
  }
  return made;
}

}  // namespace shardline
