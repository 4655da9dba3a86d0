// Post-processors of tokenizer.json: the special tokens around one text or two, and offsets without white space.
#pragma once
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/data/tokenizer/steps/encoding.h"

namespace shardline {

class JsonValue;

// A part of an encoding: a text, or special tokens.
struct TemplatePart {
  int32_t sequence = Encoding::kNone;  // 0: the first text, 1: the second; kNone: `ids`
  int32_t type = 0;
  std::vector<int32_t> ids;
};

struct PostProcessor {
  std::vector<TemplatePart> single{{.sequence = 0}};
  std::vector<TemplatePart> pair{{.sequence = 0}, {.sequence = 1, .type = 1}};
  struct TrimOffsets {
    bool add_prefix_space = true;  // a single space before the first token was not in the text and stays
  };
  TextSide truncated_side = TextSide::right;
  std::optional<TrimOffsets> trim;  // offsets do not include white space at the ends of tokens

  void drop_types();  // all become 0
  // The number of special tokens around one text or two.
  int64_t special_tokens(bool is_pair) const;
};

// [CLS] first [SEP] second [SEP], with types 0 and 1.
PostProcessor bert_post_processor(int32_t cls, int32_t sep);
// <s> first </s></s> second </s>, with type 0.
PostProcessor roberta_post_processor(int32_t cls, int32_t sep);

// Reads a component of a tokenizer.json. Throws a DataError that names what is not supported.
PostProcessor read_post_processor(const JsonValue& component);

// The white space at both ends of a token, in characters; the byte-level alphabet's character for a space is included.
struct TokenSpace {
  int leading = 0, trailing = 0;
};
TokenSpace space_around(std::string_view token);
// Returns the white space of a token that stands for `source` in the text.
using SpaceOfToken = std::function<TokenSpace(int32_t id, std::string_view source)>;

// Turns the tokens of one or two texts into encodings: truncates, trims offsets and adds special tokens. With
// options.windows, returns all windows of the text that is too long, in order; otherwise, one encoding.
struct ExampleTexts {
  struct Text {
    TextOrWords source;
    Encoding tokens;
  };
  Text first;
  std::optional<Text> second;
};
std::vector<Encoding> finish_example(ExampleTexts texts, const PostProcessor& rules, const ExampleOptions& options,
                                     const SpaceOfToken& space_of);

}  // namespace shardline
