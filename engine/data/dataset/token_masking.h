// Which tokens of an example are masked, so that a model learns to predict them, according to the rule of BERT (Devlin
// et al. 2019, arXiv 1810.04805).
#pragma once
#include <cstdint>
#include <vector>

#include "engine/data/examples/example_set.h"

namespace shardline {

struct MaskingRule {
  double probability = 0.15;  // for a token that has a label, or for a word
  bool whole_words = false;   // the tokens of a word are masked together
  int32_t mask_token = 0;
  int64_t words = 0;  // random tokens are ids below this
};

class TokenMasking {
 public:
  TokenMasking(const MaskingRule& rule, uint64_t seed) : rule_(rule), seed_(seed) {}

  struct Masked {
    int64_t place;  // the token's place in its example
    int32_t shown;  // what the model sees there
  };
  // The tokens of an example that the model predicts in an epoch, in order: a function of seed, epoch, example and
  // place alone. Of these, 80 % are replaced by the mask token and 10 % by a random token, and 10 % are unchanged; with
  // whole words, all are replaced by the mask token, as in transformers. Tokens without a label are never selected. If
  // no other token is selected at random, the token or word with the smallest random number is.
  std::vector<Masked> tokens_of(const ExampleSet& set, int64_t example, int64_t epoch) const;

 private:
  MaskingRule rule_;
  uint64_t seed_;
};

}  // namespace shardline
