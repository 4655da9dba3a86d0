// Cuts the tokens of one or two texts to a maximum number, as the reference library does.
#pragma once
#include <vector>

#include "engine/data/tokenizer/steps/encoding.h"

namespace shardline {

// The windows of each text; those after the first are what does not fit.
struct TruncatedTexts {
  std::vector<Encoding> first;
  std::vector<Encoding> second;  // empty without a second text
};

// `special` is the number of tokens that are added around the texts; `side` is the side on which texts are cut. Throws
// a DataError with the numbers if the texts cannot be cut to options.max_length in the requested way.
TruncatedTexts truncated(Encoding first, const Encoding* second, int64_t special, const ExampleOptions& options,
                         TextSide side);

}  // namespace shardline
