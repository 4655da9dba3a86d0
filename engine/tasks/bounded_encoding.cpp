#include "engine/tasks/bounded_encoding.h"

#include <utility>

namespace shardline {

BoundedEncoding encode_at_most(const Tokenizer& tokenizer, const TextOrWords& first, const TextOrWords* second,
                               int64_t most) {
  Encoding whole = tokenizer.encode_example(first, second, {}).front();
  if (std::cmp_less_equal(whole.size(), most)) return {std::move(whole)};
  const ExampleOptions cut{.truncation = Truncation::longest_first, .max_length = most};
  return {tokenizer.encode_example(first, second, cut).front(), true};
}

}  // namespace shardline
