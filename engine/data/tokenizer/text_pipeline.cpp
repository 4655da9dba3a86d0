#include "engine/data/tokenizer/text_pipeline.h"

#include <algorithm>

#include "core/error.h"

namespace shardline {

AddedTokenMatcher added_token_matcher(const std::vector<AddedToken>& tokens, bool in_normalized_text,
                                      const Normalizer& normalizer) {
  std::vector<AddedToken> chosen;
  for (AddedToken token : tokens) {
    if (token.normalized != in_normalized_text) continue;
    if (in_normalized_text && normalizer) {
      AlignedText content(token.content);
      normalizer(content);
      token.content = content.text();
    }
    chosen.push_back(std::move(token));
  }
  return AddedTokenMatcher(std::move(chosen));
}

TextPipeline::TextPipeline(const TextPipelineSpec& spec)
    : raw_added_(added_token_matcher(spec.added, false, spec.normalizer)),
      normalized_added_(added_token_matcher(spec.added, true, spec.normalizer)),
      normalizer_(spec.normalizer),
      pre_tokenizer_(spec.pre_tokenizer),
      model_(spec.model),
      post_processor_(spec.post_processor),
      decoder_(spec.decoder),
      marks_continuations_(spec.marks_continuations),
      cleans_up_(spec.cleans_up) {
  const auto learn = [&](const std::string& token, int32_t id) {
    tokens_[id] = token;
    vocab_size_ = std::max<int64_t>(vocab_size_, int64_t{id} + 1);
  };
  for (const auto& [token, id] : spec.ids) learn(token, id);
  for (const AddedToken& token : spec.added) {
    learn(token.content, token.id);
    added_.insert(token.id);
    if (token.special) special_.insert(token.id);
  }
  for (const auto* parts : {&post_processor_.single, &post_processor_.pair}) {
    for (const TemplatePart& part : *parts) {
      for (const int32_t id : part.ids) {
        if (!tokens_.contains(id)) throw DataError(cat("the post-processor adds token ", id, ", which does not exist"));
      }
    }
  }
}

void TextPipeline::append_tokens(std::string_view text, int32_t word, bool adds_space, Encoding& out) const {
  int32_t words = 0;
  const auto append = [&](int32_t id, TextSpan place) {
    out.ids.push_back(id);
    out.types.push_back(0);
    out.offsets.push_back(place);
    out.sequences.push_back(0);
    out.words.push_back(word == Encoding::kNone ? words : word);
  };
  std::vector<TokenPiece> pieces;
  const auto append_words = [&](AlignedText gap) {
    for (const AlignedText& part : pre_tokenizer_.split(std::move(gap), adds_space)) {
      pieces.clear();
      model_->encode(part.text(), pieces);
      for (const auto& [id, begin, end] : pieces) append(id, part.source(begin, end));
      ++words;
    }
  };
  const auto split_added = [&](const AddedTokenMatcher& matcher, const AlignedText& in, const auto& use_gap) {
    AddedTokenMatcher::Intervals unbroken;
    matcher.split(in.text(), 0, true, unbroken, [&](const AddedTokenMatcher::Piece& piece) {
      AlignedText part = in.slice(piece.begin, piece.end);
      if (piece.id == AddedTokenMatcher::kNone) return use_gap(std::move(part));
      append(piece.id, part.source());
      ++words;
    });
  };
  split_added(raw_added_, AlignedText(text), [&](AlignedText gap) {
    if (normalizer_) normalizer_(gap);
    split_added(normalized_added_, gap, append_words);
  });
}

Encoding TextPipeline::tokens_of(const TextOrWords& source, const ExampleOptions& options) const {
  Encoding out;
  if (const auto* text = std::get_if<std::string_view>(&source)) {
    append_tokens(*text, Encoding::kNone, /*adds_space=*/false, out);
    return out;
  }
  int32_t word = 0;
  for (const std::string& text : std::get<std::span<const std::string>>(source))
    append_tokens(text, word++, options.spaces_words, out);
  return out;
}

std::vector<Encoding> TextPipeline::encode_example(const TextOrWords& first, const TextOrWords* second,
                                                   const ExampleOptions& options) const {
  ExampleTexts texts{.first = {first, tokens_of(first, options)}, .second = {}};
  if (second) texts.second = {*second, tokens_of(*second, options)};
  return finish_example(std::move(texts), post_processor_, options, [this](int32_t id, std::string_view source) {
    // An added token may have been found with the white space around it.
    return space_around(added_.contains(id) ? source : tokens_.at(id));
  });
}

std::vector<int32_t> TextPipeline::ids_of(std::string_view text) const {
  Encoding out;
  append_tokens(text, Encoding::kNone, /*adds_space=*/false, out);
  return std::move(out.ids);
}

std::string TextPipeline::decode(std::span<const int32_t> ids) const {
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    const auto found = tokens_.find(id);
    if (found != tokens_.end()) tokens.push_back(found->second);
  }
  std::string text = decoder_(std::move(tokens));
  return cleans_up_ ? without_spaces_of_tokens(std::move(text)) : text;
}

std::optional<int32_t> TextPipeline::id(std::string_view token) const {
  std::call_once(ids_are_made_, [&] {
    for (const auto& [id, text] : tokens_) ids_.emplace(text, id);
  });
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::string TextPipeline::token(int32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? "" : found->second;
}

}  // namespace shardline
