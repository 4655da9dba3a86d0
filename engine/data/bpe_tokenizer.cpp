#include "engine/data/bpe_tokenizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "engine/data/byte_level.h"
#include "engine/data/regex_dialect.h"
#include "engine/data/utf8.h"

namespace shardline {
namespace {

std::string normalized(std::string_view text) {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw DataError(cat("a text of ", text.size(), " bytes is too long for NFC normalization; cut it into files"));
  }
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(status);
  std::string out;
  icu::StringByteSink<std::string> sink(&out);
  const icu::StringPiece input(text.data(), static_cast<int32_t>(text.size()));
  if (U_SUCCESS(status)) nfc->normalizeUTF8(0, input, sink, nullptr, status);
  if (U_FAILURE(status)) throw RunError(cat("ICU cannot normalize a text: ", u_errorName(status)));
  return out;
}

// Patterns that end a piece at a line end that stands alone, no other white space beside it.
bool parts_at_lines(const std::string& pattern) {
  static const std::string llama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static const std::string qwen2 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  return pattern == kGpt2Pattern || pattern == llama3 || pattern == qwen2;
}

bool safe_at_lines(const BpeTokenizerSpec& spec) {
  const auto known = [](const SplitStep& step) { return parts_at_lines(step.pattern); };
  const auto reaches_over = [](const AddedToken& token) {
    return token.lstrip || token.content.find('\n') != std::string::npos;
  };
  return !spec.add_prefix_space && (spec.byte_level_pattern || !spec.splits.empty()) &&
         std::all_of(spec.splits.begin(), spec.splits.end(), known) &&
         std::none_of(spec.added.begin(), spec.added.end(), reaches_over);
}

AddedTokenMatcher matcher(const BpeTokenizerSpec& spec, bool in_normalized_text) {
  std::vector<AddedToken> chosen;
  for (AddedToken token : spec.added) {
    if (token.normalized != in_normalized_text) continue;
    if (in_normalized_text && spec.nfc) token.content = normalized(token.content);
    chosen.push_back(std::move(token));
  }
  return AddedTokenMatcher(std::move(chosen));
}

}  // namespace

const char* const kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

BpeTokenizer::BpeTokenizer(const BpeTokenizerSpec& spec)
    : model_(spec.vocabulary),
      raw_added_(matcher(spec, false)),
      normalized_added_(matcher(spec, true)),
      nfc_(spec.nfc),
      add_prefix_space_(spec.add_prefix_space),
      cuts_at_lines_(safe_at_lines(spec)),
      digest_(spec.digest) {
  for (const SplitStep& step : spec.splits) splits_.emplace_back(pcre2_pattern(step.pattern), step.keep);
  if (spec.byte_level_pattern) byte_level_split_.emplace(pcre2_pattern(kGpt2Pattern), SplitPattern::Keep::all);

  const auto learn = [&](const std::string& token, int32_t id) {
    bytes_of_id_[id] = bytes_of_byte_level(token).value_or(token);
    vocab_size_ = std::max<int64_t>(vocab_size_, int64_t{id} + 1);
    if (spec.eos && token == *spec.eos) eos_ = id;
  };
  for (const auto& [token, id] : spec.vocabulary.ids) learn(token, id);
  for (const AddedToken& token : spec.added) learn(token.content, token.id);
  if (spec.eos && !eos_) throw DataError(cat("the vocabulary has no token '", *spec.eos, "', which is the eos_token"));
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text) const {
  std::string repaired;
  if (!is_valid_utf8(text)) text = repaired = replace_invalid_utf8(text);

  std::vector<int32_t> ids;
  raw_added_.split(text, [&](std::string_view piece, int32_t added) {
    if (added != AddedTokenMatcher::kNone) return ids.push_back(added);
    const std::string composed = nfc_ ? normalized(piece) : std::string();
    normalized_added_.split(nfc_ ? std::string_view(composed) : piece, [&](std::string_view part, int32_t token) {
      if (token != AddedTokenMatcher::kNone) return ids.push_back(token);
      encode_piece(part, 0, ids);
    });
  });
  return ids;
}

// Split steps from `step` on, then the byte level.
void BpeTokenizer::encode_piece(std::string_view text, size_t step, std::vector<int32_t>& ids) const {
  if (step == splits_.size()) return encode_byte_level(text, ids);
  splits_[step].split(text, [&](std::string_view piece) { encode_piece(piece, step + 1, ids); });
}

void BpeTokenizer::encode_byte_level(std::string_view text, std::vector<int32_t>& ids) const {
  std::string prefixed;
  if (add_prefix_space_ && !text.starts_with(' ')) text = prefixed = cat(" ", text);
  if (!byte_level_split_) return model_.encode(text, ids);
  byte_level_split_->split(text, [&](std::string_view word) { model_.encode(word, ids); });
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids) const {
  std::string bytes;
  for (const int32_t id : ids) {
    const auto found = bytes_of_id_.find(id);
    if (found != bytes_of_id_.end()) bytes += found->second;
  }
  return replace_invalid_utf8(bytes);
}

size_t BpeTokenizer::safe_cut(std::string_view text, size_t from) const {
  if (!cuts_at_lines_) return text.size();
  size_t line_end = text.find('\n', from > 0 ? from - 1 : 0);
  for (; line_end != std::string_view::npos; line_end = text.find('\n', line_end + 1)) {
    size_t before = line_end;
    size_t behind = line_end + 1;
    if (before == 0 || behind == text.size()) continue;
    if (is_white_space(previous_code_point(text, before)) || is_white_space(next_code_point(text, behind))) continue;
    return line_end + 1;
  }
  return text.size();
}

}  // namespace shardline
