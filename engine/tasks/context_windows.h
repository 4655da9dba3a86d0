// The windows of a context in which a model looks for the answer to a question. Predictions for files and the answers
// of a served model use the same windows.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/data/tokenizer/tokenizer.h"
#include "engine/metrics/answer_spans.h"

namespace shardline {

struct WindowSize {
  int64_t tokens = 0;  // limit: the question, its part of the context and special tokens
  int64_t shared = 0;  // tokens of the context that a window shares with the previous one
};
// Throws DataError if a context that is cut leaves nothing new for a window.
std::vector<Encoding> context_windows(const Tokenizer& tokenizer, std::string_view question, std::string_view context,
                                      const WindowSize& size);

// The part of the context that each token of a window stands for; nothing for tokens outside of the context.
std::vector<std::optional<AnswerSpan>> context_spans(const Encoding& window);

}  // namespace shardline
