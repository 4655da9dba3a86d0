// Texts at which a continuation ends, equivalent to stop_strings of transformers' generate.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/data/tokenizer/tokenizer.h"

namespace shardline {

class StopTexts {
 public:
  // texts: none may be empty.
  StopTexts(TokenizerPtr tokenizer, std::vector<std::string> texts);

  const std::vector<std::string>& texts() const { return texts_; }
  // Whether the last token of a sequence completes one of the texts, which may begin in the prompt, and after which the
  // token may have further characters.
  bool are_completed_by(std::span<const int32_t> ids) const;

 private:
  TokenizerPtr tokenizer_;
  std::vector<std::string> texts_;
  size_t longest_ = 0;  // bytes
};

}  // namespace shardline
