#include "engine/data/tokenizer/tokenizer_spec.h"

#include <algorithm>

#include "core/error.h"
#include "engine/data/text/utf8.h"
#include "engine/data/tokenizer/bpe_tokenizer.h"
#include "engine/data/tokenizer/pipeline_tokenizer.h"

namespace shardline {
namespace {

std::shared_ptr<const TokenModel> make_model(const TokenizerSpec& spec) {
  if (const auto* options = std::get_if<WordPieceOptions>(&spec.model))
    return std::make_shared<WordPieceModel>(spec.ids, *options);
  if (const auto* vocabulary = std::get_if<UnigramVocabulary>(&spec.model))
    return std::make_shared<UnigramModel>(*vocabulary);
  return std::make_shared<BpeModel>(spec.ids, std::get<BpeVocabulary>(spec.model));
}

bool all_white_space(std::string_view text) {
  for (size_t offset = 0; offset < text.size();) {
    if (!is_white_space(next_code_point(text, offset))) return false;
  }
  return !text.empty();
}

bool ends_lines(const Normalizer& normalizer, std::string_view newline) {
  AlignedText text(newline);
  if (normalizer) normalizer(text);
  return all_white_space(text.text());
}

// Whether each line of a text has the tokens that it would have alone.
bool lines_are_apart(const TokenizerSpec& spec) {
  const auto has_newline = [](const AddedToken& token) { return token.content.find('\n') != std::string::npos; };
  return spec.normalizes_lines_apart && spec.pre_tokenizer.removes_white_space && ends_lines(spec.normalizer, "\n") &&
         ends_lines(spec.normalizer, "\r\n") && std::none_of(spec.added.begin(), spec.added.end(), has_newline);
}

}  // namespace

std::optional<int32_t> find_token(const TokenizerSpec& spec, const std::string& token) {
  const auto known = spec.ids.find(token);
  if (known != spec.ids.end()) return known->second;
  const auto is_it = [&](const AddedToken& added) { return added.content == token; };
  const auto added = std::find_if(spec.added.begin(), spec.added.end(), is_it);
  return added == spec.added.end() ? std::nullopt : std::optional(added->id);
}

TokenizerPtr make_tokenizer(TokenizerSpec spec, const SpecialTokens& special, const std::string& digest) {
  const bool lines_apart = lines_are_apart(spec);
  const bool is_bpe = std::holds_alternative<BpeVocabulary>(spec.model);
  const TextPipelineSpec pipeline{.ids = spec.ids,
                                  .added = spec.added,
                                  .normalizer = spec.normalizer,
                                  .pre_tokenizer = spec.pre_tokenizer,
                                  .model = make_model(spec),
                                  .post_processor = spec.post_processor,
                                  .decoder = spec.decoder,
                                  .marks_continuations = std::holds_alternative<WordPieceOptions>(spec.model),
                                  .cleans_up = spec.cleans_up && !is_bpe};
  if (!spec.window_rules) return std::make_shared<PipelineTokenizer>(pipeline, lines_apart, special, digest);
  spec.window_rules->added = spec.added;
  return std::make_shared<BpeTokenizer>(pipeline, *spec.window_rules, special, digest);
}

}  // namespace shardline
