// Rules that change the logits of the next token before it is chosen, equivalent to the logits processors of
// transformers' generate. They are applied in the order of the fields.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace shardline {

struct TokenRules {
  // Tokens that the sequence already has: positive logits are divided by this, others multiplied.
  double repetition_penalty = 1;
  int64_t no_repeat_ngram_size = 0;  // n-grams of this length occur only once in the sequence; 0: no limit
  int64_t least_new = 0;             // none of `ends` is chosen before this many new tokens
  std::vector<int32_t> ends = {};    // tokens that end a text

  bool change_nothing() const { return repetition_penalty == 1 && no_repeat_ngram_size == 0 && least_new == 0; }
};

// logits: [vocabulary] in host memory; not changed. ids: the sequence so far, which is the prompt and then `made` new
// tokens.
at::Tensor ruled_logits(const at::Tensor& logits, const TokenRules& rules, std::span<const int32_t> ids, int64_t made);

}  // namespace shardline
