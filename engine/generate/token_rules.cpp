#include "engine/generate/token_rules.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <limits>

namespace shardline {
namespace {

at::Tensor places_of_tokens(std::span<const int32_t> ids) {
  return at::tensor(std::vector<int64_t>(ids.begin(), ids.end()), at::kLong);
}

void exclude(const at::Tensor& logits, const std::vector<int32_t>& ids) {
  if (!ids.empty()) logits.index_fill_(0, places_of_tokens(ids), -std::numeric_limits<double>::infinity());
}

// The tokens that would complete an n-gram that the sequence already has.
std::vector<int32_t> repeated_ends(std::span<const int32_t> ids, size_t n) {
  std::vector<int32_t> ends;
  if (ids.size() < n) return ends;
  const auto last = ids.last(n - 1);
  for (size_t begin = 0; begin + n <= ids.size(); ++begin)
    if (std::ranges::equal(ids.subspan(begin, n - 1), last)) ends.push_back(ids[begin + n - 1]);
  return ends;
}

}  // namespace

at::Tensor ruled_logits(const at::Tensor& logits, const TokenRules& rules, std::span<const int32_t> ids, int64_t made) {
  if (rules.change_nothing()) return logits;
  at::Tensor changed = logits.clone();
  if (rules.repetition_penalty != 1) {
    const at::Tensor known = places_of_tokens(ids), before = changed.index_select(0, known);
    changed.index_copy_(0, known,
                        at::where(before < 0, before * rules.repetition_penalty, before / rules.repetition_penalty));
  }
  if (rules.no_repeat_ngram_size > 0) exclude(changed, repeated_ends(ids, rules.no_repeat_ngram_size));
  if (made < rules.least_new) exclude(changed, rules.ends);
  return changed;
}

}  // namespace shardline
