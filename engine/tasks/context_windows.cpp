#include "engine/tasks/context_windows.h"

namespace shardline {

std::vector<Encoding> context_windows(const Tokenizer& tokenizer, std::string_view question, std::string_view context,
                                      const WindowSize& size) {
  const TextOrWords second = context;
  return tokenizer.encode_example(
      question, &second,
      {.truncation = Truncation::only_second, .max_length = size.tokens, .windows = true, .stride = size.shared});
}

std::vector<std::optional<AnswerSpan>> context_spans(const Encoding& window) {
  std::vector<std::optional<AnswerSpan>> spans(window.size());
  for (size_t token = 0; token < window.size(); ++token) {
    const int64_t begin = window.offsets[token].begin, end = window.offsets[token].end;
    if (window.sequences[token] == 1) spans[token] = AnswerSpan{begin, end};
  }
  return spans;
}

}  // namespace shardline
