#include "engine/data/dataset/token_masking.h"

#include <algorithm>
#include <limits>

#include "core/numbers/philox.h"
#include "core/numbers/philox_block.h"

namespace shardline {
namespace {

constexpr uint32_t kMaskingOp = 65533;  // no dropout has this number
constexpr double kShownAsMask = 0.8, kShownAsMaskOrRandom = 0.9;
constexpr uint64_t kNumbersOfToken = 4;  // numbers of the stream for each token; the first three are used

}  // namespace

std::vector<TokenMasking::Masked> TokenMasking::tokens_of(const ExampleSet& set, int64_t example, int64_t epoch) const {
  const RandomStream stream{.seed = seed_, .op = kMaskingOp, .step = uint32_t(epoch), .sample = uint32_t(example)};
  const auto is_below = [&](uint64_t element, double share) {
    return random_word(stream, element) < keep_limit(share);
  };
  const auto ids = set.ids(example), labels = set.labels(example);
  const auto continues = set.continues(example);
  std::vector<uint32_t> draws;  // one for each token; those of a word are equal
  uint64_t limit = keep_limit(rule_.probability), least = std::numeric_limits<uint64_t>::max();
  for (size_t place = 0; place < ids.size(); ++place) {
    const bool is_new_word = place == 0 || !rule_.whole_words || continues[place] == 0;
    draws.push_back(is_new_word ? random_word(stream, kNumbersOfToken * place) : draws.back());
    if (labels[place] != kNoLabel) least = std::min<uint64_t>(least, draws.back());
  }
  if (least >= limit) limit = least + 1;  // a step of short samples must have something to predict
  std::vector<Masked> masked;
  for (size_t place = 0; place < ids.size(); ++place) {
    if (draws[place] >= limit || labels[place] == kNoLabel) continue;
    int32_t shown = rule_.mask_token;
    const uint64_t element = kNumbersOfToken * place;
    if (!rule_.whole_words && !is_below(element + 1, kShownAsMask)) {
      const bool is_random = is_below(element + 1, kShownAsMaskOrRandom);
      shown = is_random ? random_word(stream, element + 2) * rule_.words >> 32 : ids[place];
    }
    masked.push_back({.place = int64_t(place), .shown = shown});
  }
  return masked;
}

}  // namespace shardline
