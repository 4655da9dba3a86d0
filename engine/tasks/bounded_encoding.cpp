#include "engine/tasks/bounded_encoding.h"

#include <utility>

namespace shardline {
namespace {

// The word of the last token of a text, and where the token ends in it.
std::pair<int32_t, uint32_t> end_of(const Encoding& encoding) {
  for (size_t token = encoding.size(); token-- > 0;)
    if (!encoding.is_special(token)) return {encoding.words[token], encoding.offsets[token].end};
  return {Encoding::kNone, 0};
}

}  // namespace

BoundedEncoding encode_at_most(const Tokenizer& tokenizer, const TextOrWords& first, const TextOrWords* second,
                               int64_t most, bool spaces_words) {
  ExampleOptions options{.spaces_words = spaces_words};
  Encoding whole = tokenizer.encode_example(first, second, options).front();
  if (std::cmp_less_equal(whole.size(), most)) return {std::move(whole)};
  options.truncation = Truncation::longest_first;
  options.max_length = most;
  Encoding kept = tokenizer.encode_example(first, second, options).front();
  const bool lacks_end = end_of(kept) != end_of(whole);
  return {std::move(kept), true, lacks_end};
}

}  // namespace shardline
