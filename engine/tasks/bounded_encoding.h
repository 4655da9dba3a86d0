// The input of a model for a text or a pair of texts, limited to the tokens that a sample may have.
#pragma once
#include "engine/data/tokenizer/tokenizer.h"

namespace shardline {

struct BoundedEncoding {
  Encoding encoding;
  bool is_shortened =
      false;               // the whole text has more than `most` tokens; from a pair, the longer text loses some first
  bool lacks_end = false;  // the end of the (last) text was cut off, not its beginning
};
// Encodes with special tokens, cut on the side that the tokenizer determines. second: null for one text. spaces_words:
// see ExampleOptions.
BoundedEncoding encode_at_most(const Tokenizer& tokenizer, const TextOrWords& first, const TextOrWords* second,
                               int64_t most, bool spaces_words = false);

}  // namespace shardline
