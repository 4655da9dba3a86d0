// Tokenizers whose words cannot be proven in a window of a text: WordPiece, Unigram, BPE of characters, and byte-level
// BPE with rules other than those in bpe_tokenizer.h.
#pragma once
#include <string>
#include <vector>

#include "engine/data/tokenizer/text_pipeline.h"
#include "engine/data/tokenizer/tokenizer.h"

namespace shardline {

class PipelineTokenizer final : public Tokenizer {
 public:
  // `lines_apart`: the ids of a text are those of its lines, so that every line begins with a seam. Otherwise only the
  // whole text has proven ids.
  PipelineTokenizer(const TextPipelineSpec& spec, bool lines_apart, const SpecialTokens& special, std::string digest);

  std::vector<int32_t> encode(std::string_view text) const override { return pipeline_.ids_of(text); }
  EncodedPart encode_part(std::string_view text, const Seam& from, const PartOptions& options) const override;
  std::vector<Encoding> encode_example(const TextOrWords& first, const TextOrWords* second,
                                       const ExampleOptions& options) const override {
    return pipeline_.encode_example(first, second, options);
  }
  std::string decode(std::span<const int32_t> ids) const override { return pipeline_.decode(ids); }
  std::string token(int32_t id) const override { return pipeline_.token(id); }
  std::optional<int32_t> id(std::string_view token) const override { return pipeline_.id(token); }
  std::string joined(std::vector<std::string> tokens) const override { return pipeline_.joined(std::move(tokens)); }
  bool marks_continuations() const override { return pipeline_.marks_continuations(); }
  bool is_special(int32_t id) const override { return special_.contain(id) || pipeline_.is_special(id); }
  int64_t vocab_size() const override { return pipeline_.vocab_size(); }
  std::optional<int32_t> special(SpecialToken role) const override { return special_[role]; }
  const std::string& digest() const override { return digest_; }

 private:
  TextPipeline pipeline_;
  bool lines_apart_;
  SpecialTokens special_;
  std::string digest_;
};

}  // namespace shardline
