// Pre-tokenizers of tokenizer.json: how normalized text is split into words.
#pragma once
#include <functional>
#include <vector>

#include "engine/data/text/aligned_text.h"

namespace shardline {

class JsonValue;

struct PreTokenizer {
  // Splits a piece of text; empty words do not count.
  using Step = std::function<std::vector<AlignedText>(AlignedText)>;
  std::vector<Step> steps;
  // The words are bytes: the model's vocabulary is written in the byte-level alphabet.
  bool byte_level = false;
  // With byte_level: a space is added to a text that begins with another character.
  bool adds_space = false;
  // The first step removes white space, and no word has any.
  bool removes_white_space = false;

  // adds_space_here: with byte_level, the same as adds_space for this text.
  std::vector<AlignedText> split(AlignedText text, bool adds_space_here = false) const;
};

// The pre-tokenizer of BERT: white space separates, each punctuation mark is a word.
PreTokenizer bert_pre_tokenizer();
// The pre-tokenizer of GPT-2 and RoBERTa.
PreTokenizer byte_level_pre_tokenizer(bool add_prefix_space);

enum class PrependScheme { always, first, never };
PrependScheme read_prepend_scheme(const JsonValue& component);
// SentencePiece's: spaces become `replacement`, which begins words if `splits`.
PreTokenizer::Step metaspace(char32_t replacement, PrependScheme scheme, bool splits);
PreTokenizer::Step white_space_split();

// The pattern of GPT-2, which a ByteLevel pre-tokenizer with use_regex implies.
extern const char* const kGpt2Pattern;

// Reads a component of a tokenizer.json. Throws a DataError that names what is not supported.
PreTokenizer read_pre_tokenizer(const JsonValue& component);

}  // namespace shardline
