#include "engine/data/dataset/token_masking.h"

#include "core/numbers/philox.h"
#include "core/numbers/philox_block.h"

namespace shardline {
namespace {

constexpr uint32_t kMaskingOp = 65533;  // no dropout has this number
constexpr double kShownAsMask = 0.8, kShownAsMaskOrRandom = 0.9;
constexpr uint64_t kNumbersOfToken = 4;  // of the stream; the first three are used

}  // namespace

std::vector<TokenMasking::Masked> TokenMasking::tokens_of(const ExampleSet& set, int64_t example, int64_t epoch) const {
  const RandomStream stream{.seed = seed_, .op = kMaskingOp, .step = uint32_t(epoch), .sample = uint32_t(example)};
  const auto is_below = [&](uint64_t element, double share) {
    return random_word(stream, element) < keep_limit(share);
  };
  const auto ids = set.ids(example), labels = set.labels(example);
  const auto continues = set.continues(example);
  std::vector<Masked> masked;
  bool is_hidden = false;
  for (size_t place = 0; place < ids.size(); ++place) {
    const uint64_t element = kNumbersOfToken * place;
    const bool is_new_word = place == 0 || !rule_.whole_words || continues[place] == 0;
    if (is_new_word) is_hidden = is_below(element, rule_.probability);
    if (!is_hidden || labels[place] == kNoLabel) continue;
    int32_t shown = rule_.mask_token;
    if (!rule_.whole_words && !is_below(element + 1, kShownAsMask)) {
      const bool is_random = is_below(element + 1, kShownAsMaskOrRandom);
      shown = is_random ? random_word(stream, element + 2) * rule_.words >> 32 : ids[place];
    }
    masked.push_back({.place = int64_t(place), .shown = shown});
  }
  return masked;
}

}  // namespace shardline
