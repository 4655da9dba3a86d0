#include "engine/generate/continued_text.h"

#include <algorithm>
#include <vector>

namespace shardline {

std::string continued_text(const Tokenizer& tokenizer, std::span<const int32_t> prompt, std::span<const int32_t> made) {
  std::vector<int32_t> all(prompt.begin(), prompt.end());
  all.insert(all.end(), made.begin(), made.end());
  const std::string before = tokenizer.decode(prompt), text = tokenizer.decode(all);
  return text.substr(std::min(before.size(), text.size()));
}

}  // namespace shardline
