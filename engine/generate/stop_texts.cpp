#include "engine/generate/stop_texts.h"

#include <algorithm>
#include <utility>

namespace shardline {

StopTexts::StopTexts(TokenizerPtr tokenizer, std::vector<std::string> texts)
    : tokenizer_(std::move(tokenizer)), texts_(std::move(texts)) {
  for (const std::string& text : texts_) longest_ = std::max(longest_, text.size());
}

bool StopTexts::are_completed_by(std::span<const int32_t> ids) const {
  // A token has at least one byte. One more token is needed because the first may be decoded as the beginning of a
  // text.
  const auto end = ids.last(std::min(ids.size(), longest_ + 1));
  const std::string before = tokenizer_->decode(end.first(end.size() - 1)), whole = tokenizer_->decode(end);
  // The text from here on is new or has changed: a part of a character becomes a character when its last byte comes.
  const size_t same = std::ranges::mismatch(before, whole).in2 - whole.begin();
  return std::ranges::any_of(texts_, [&](const std::string& text) {
    const size_t first = same + 1 - std::min(same + 1, text.size());
    return whole.find(text, first) != std::string::npos;
  });
}

}  // namespace shardline
