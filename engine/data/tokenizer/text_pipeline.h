// The components of a tokenizer one after the other: added tokens, normalizer, pre-tokenizer, model, post-processor,
// decoder. It keeps the place of each token in the text.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/data/tokenizer/added_tokens.h"
#include "engine/data/tokenizer/steps/decoder.h"
#include "engine/data/tokenizer/steps/encoding.h"
#include "engine/data/tokenizer/steps/normalizer.h"
#include "engine/data/tokenizer/steps/post_processor.h"
#include "engine/data/tokenizer/steps/pre_tokenizer.h"
#include "engine/data/tokenizer/steps/token_model.h"

namespace shardline {

struct TextPipelineSpec {
  std::unordered_map<std::string, int32_t> ids;  // the vocabulary's ids
  std::vector<AddedToken> added;
  Normalizer normalizer;  // may be empty
  PreTokenizer pre_tokenizer;
  std::shared_ptr<const TokenModel> model;
  PostProcessor post_processor;
  Decoder decoder;
  bool marks_continuations = false;  // see Tokenizer
  bool cleans_up = false;            // texts of ids are without_spaces_of_tokens
};

class TextPipeline {
 public:
  // Throws DataError for special tokens of the post-processor that the vocabulary lacks.
  explicit TextPipeline(const TextPipelineSpec& spec);

  std::vector<Encoding> encode_example(const TextOrWords& first, const TextOrWords* second,
                                       const ExampleOptions& options) const;
  // The ids of a text without special tokens around it.
  std::vector<int32_t> ids_of(std::string_view text) const;
  std::string decode(std::span<const int32_t> ids) const;
  // Tokenizer describes the following functions.
  std::string token(int32_t id) const;
  std::optional<int32_t> id(std::string_view token) const;
  std::string joined(std::vector<std::string> tokens) const { return decoder_(std::move(tokens)); }
  bool marks_continuations() const { return marks_continuations_; }
  bool is_special(int32_t id) const { return special_.contains(id); }
  int64_t vocab_size() const { return vocab_size_; }

 private:
  Encoding tokens_of(const TextOrWords& source, const ExampleOptions& options) const;
  // `word`: the word of all tokens; kNone: words are counted.
  void append_tokens(std::string_view text, int32_t word, bool adds_space, Encoding& out) const;

  AddedTokenMatcher raw_added_;
  AddedTokenMatcher normalized_added_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::shared_ptr<const TokenModel> model_;
  PostProcessor post_processor_;
  Decoder decoder_;
  std::unordered_map<int32_t, std::string> tokens_;
  mutable std::once_flag ids_are_made_;  // few programs ask for ids, so they are made when the first does
  mutable std::unordered_map<std::string_view, int32_t> ids_;
  std::unordered_set<int32_t> added_, special_;
  bool marks_continuations_, cleans_up_;
  int64_t vocab_size_ = 0;
};

// The added tokens that are searched for in the normalized text, in their normalized form, or the others.
AddedTokenMatcher added_token_matcher(const std::vector<AddedToken>& tokens, bool in_normalized_text,
                                      const Normalizer& normalizer);

}  // namespace shardline
