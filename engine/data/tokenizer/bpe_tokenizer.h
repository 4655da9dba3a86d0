// Byte-level BPE as the `tokenizers` library does it: words, then byte-pair merges.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/data/tokenizer/bpe_model.h"
#include "engine/data/tokenizer/text_pipeline.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/data/tokenizer/window_words.h"

namespace shardline {

class BpeTokenizer final : public Tokenizer {
 public:
  // The pipeline's model is a byte-level BpeModel, and `words` are the rules of its other components.
  BpeTokenizer(const TextPipelineSpec& pipeline, const WordRules& words, const SpecialTokens& special,
               std::string digest);
  BpeTokenizer(const BpeTokenizer&) = delete;
  BpeTokenizer& operator=(const BpeTokenizer&) = delete;

  std::vector<int32_t> encode(std::string_view text) const override;
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
  void append_ids(std::span<const Word> words, int threads, std::vector<int32_t>& ids) const;

  TextPipeline pipeline_;
  std::shared_ptr<const BpeModel> model_;
  WordSplitter splitter_;
  SpecialTokens special_;
  std::string digest_;
};

}  // namespace shardline
