#include "engine/data/tokenizer/added_tokens.h"

#include <algorithm>

#include "engine/data/text/characters.h"
#include "engine/data/text/utf8.h"

namespace shardline {
namespace {

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  size_t before = begin;
  if (begin > 0 && is_word_character(previous_code_point(text, before))) return false;
  size_t after = end;
  return end == text.size() || !is_word_character(next_code_point(text, after));
}

// The start of the white space that ends at `end`.
size_t space_before(std::string_view text, size_t end) {
  for (size_t offset = end; end > 0; end = offset) {
    if (!is_white_space(previous_code_point(text, offset))) break;
  }
  return end;
}

// The end of the white space that starts at `begin`.
size_t space_after(std::string_view text, size_t begin) {
  for (size_t offset = begin; begin < text.size(); begin = offset) {
    if (!is_white_space(next_code_point(text, offset))) break;
  }
  return begin;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) {
  for (AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    empty_ = false;
    any_lstrip_ |= token.lstrip;
    size_t offset = 0;
    any_begins_with_space_ |= is_white_space(next_code_point(token.content, offset));
    if (token.single_word) bytes_behind_ = 4;
    const unsigned char first_byte = token.content[0];
    by_first_byte_[first_byte].push_back(std::move(token));
  }
  for (auto& bucket : by_first_byte_) {
    std::stable_sort(bucket.begin(), bucket.end(),
                     [](const auto& a, const auto& b) { return a.content.size() > b.content.size(); });
  }
}

const AddedToken* AddedTokenMatcher::match_at(std::string_view text, size_t offset, bool ends, bool& unsure) const {
  const std::string_view rest = text.substr(offset);
  const unsigned char first_byte = text[offset];
  for (const AddedToken& token : by_first_byte_[first_byte]) {
    if (rest.starts_with(token.content)) return &token;
    if (!ends && std::string_view(token.content).starts_with(rest)) {
      unsure = true;
      return nullptr;
    }
  }
  return nullptr;
}

void AddedTokenMatcher::split(std::string_view text, size_t start, bool ends, Intervals& unbroken,
                              const Use& use) const {
  size_t done = start;
  size_t offset = empty_ ? text.size() : start;
  while (offset < text.size()) {
    bool unsure = false;
    const AddedToken* token = match_at(text, offset, ends, unsure);
    if (unsure) break;
    if (!token) {
      ++offset;
      continue;
    }
    size_t begin = offset;
    const size_t token_end = offset + token->content.size();
    const size_t end = token->rstrip ? space_after(text, token_end) : token_end;
    if (!ends && end == text.size() && (token->rstrip || token->single_word)) break;
    offset = token_end;  // even if the token does not count: the search never looks inside a token that it has found
    if (token->single_word && !stands_alone(text, begin, token_end)) {
      unbroken.emplace_back(begin, token_end);
      continue;
    }
    if (token->lstrip) begin = std::max(space_before(text, begin), done);
    if (end > token_end && any_begins_with_space_) unbroken.emplace_back(token_end, end + 1);
    if (done < begin) use({done, begin, kNone, true});
    use({begin, end, token->id, true});
    done = end;
  }
  if (!ends && any_lstrip_)
    offset = std::max(space_before(text, offset), done);  // a token may include this white space
  if (done < offset) use({done, offset, kNone, ends});
}

}  // namespace shardline
