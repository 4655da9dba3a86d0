// The text of tokens that continue others.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "engine/data/tokenizer/tokenizer.h"

namespace shardline {

// What the tokens `made` add to the text of `prompt`. Decoded alone, they may have another text: a word at the
// beginning of a text has no space before it.
std::string continued_text(const Tokenizer& tokenizer, std::span<const int32_t> prompt, std::span<const int32_t> made);

}  // namespace shardline
