// Continues token ids with a model on any layout. Each layer's keys and values are kept, so a new token costs the
// products of one token.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/train/trainer.h"

namespace shardline {

struct Sampling {
  double temperature = 1;  // 0: the most likely token
  int64_t top_k = 0;       // only the k most likely; 0: all
  double top_p = 1;        // of these, only the most likely ones that together have this share of the probability
  uint64_t seed = 0;
};

// Samples a token from logits [vocabulary] in host memory for position `position` of sequence `sequence`; a pure
// function.
int64_t sample_token(const at::Tensor& logits, const Sampling& sampling, int64_t sequence, int64_t position);

// Returns at most max_new tokens that follow `prompt` (not empty); ends after `eos` or at the model's last position.
// `sequence` keys the random numbers. Collective over the world; every rank returns the tokens that the first one
// samples. use_cache: false recomputes all positions for every token.
std::vector<int32_t> generate(RankTrainer& model, const ModelSpec& spec, const std::vector<int64_t>& prompt,
                              int64_t max_new, std::optional<int32_t> eos, const Sampling& sampling, int64_t sequence,
                              bool use_cache = true);

}  // namespace shardline
