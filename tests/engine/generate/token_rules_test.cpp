// tests/transformers/compare_serve.py compares whole texts with those of transformers' generate.
#include "engine/generate/token_rules.h"

#include <ATen/ops/tensor.h>

#include <limits>

#include "tests/catch.h"

namespace shardline::token_rules_test {
namespace {

using Values = std::vector<double>;

constexpr double kNever = -std::numeric_limits<double>::infinity();

Values ruled(const TokenRules& rules, const std::vector<int32_t>& ids, int64_t made) {
  const auto logits = at::tensor({3.0, -3.0, 1.0, 0.5, -0.5}, at::kDouble);
  const auto changed = ruled_logits(logits, rules, ids, made);
  CHECK(logits[0].item<double>() == 3);
  return {changed.const_data_ptr<double>(), changed.const_data_ptr<double>() + changed.numel()};
}

}  // namespace

TEST_CASE("repetition_penalty makes tokens of the sequence less or more likely") {
  CHECK(ruled({.repetition_penalty = 2}, {0, 1, 0, 4}, 1) == Values{1.5, -6, 1, 0.5, -1});
  CHECK(ruled({.repetition_penalty = 0.5}, {1, 2}, 0) == Values{3, -1.5, 2, 0.5, -0.5});
  CHECK(ruled({}, {0, 1, 0, 4}, 1) == Values{3, -3, 1, 0.5, -0.5});
}

TEST_CASE("no_repeat_ngram_size excludes repeated sequences of tokens") {
  // 0 was followed by 1 and 3.
  CHECK(ruled({.no_repeat_ngram_size = 2}, {0, 1, 0, 3, 0}, 1) == Values{3, kNever, 1, kNever, -0.5});
  CHECK(ruled({.no_repeat_ngram_size = 3}, {0, 1, 2, 4, 0, 1}, 1) == Values{3, -3, kNever, 0.5, -0.5});
  CHECK(ruled({.no_repeat_ngram_size = 1}, {0, 4}, 1) == Values{kNever, -3, 1, 0.5, kNever});
  CHECK(ruled({.no_repeat_ngram_size = 3}, {0, 1}, 1) == Values{3, -3, 1, 0.5, -0.5});
}

TEST_CASE("a text does not end before it has min_new_tokens tokens") {
  const TokenRules rules{.least_new = 2, .ends = {2, 3}};
  CHECK(ruled(rules, {0, 1, 2}, 1) == Values{3, -3, kNever, kNever, -0.5});
  CHECK(ruled(rules, {0, 1, 2}, 2) == Values{3, -3, 1, 0.5, -0.5});
}

}  // namespace shardline::token_rules_test
