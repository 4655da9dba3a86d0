#include "engine/data/tokenizer/steps/word_piece.h"

#include <algorithm>

#include "core/error.h"
#include "engine/data/text/utf8.h"

namespace shardline {

WordPieceModel::WordPieceModel(std::unordered_map<std::string, int32_t> ids, const WordPieceOptions& options)
    : ids_(std::move(ids)), options_(options) {
  const auto unknown = ids_.find(options.unknown);
  if (unknown == ids_.end())
    throw DataError(cat("the vocabulary has no token '", options.unknown, "', which is its unk_token"));
  unknown_ = unknown->second;
  for (const auto& [token, id] : ids_) longest_ = std::max(longest_, token.size());
}

TokenPiece WordPieceModel::longest(std::string_view text, bool continues) const {
  std::string token = continues ? options_.prefix : "";
  const size_t prefix = token.size();
  size_t end = std::min(text.size(), longest_);
  end = code_point_start(text, end);
  token += text.substr(0, end);
  while (end > 0) {
    const auto found = ids_.find(token);
    if (found != ids_.end()) return {found->second, 0, uint32_t(end)};
    previous_code_point(text, end);
    token.resize(prefix + end);
  }
  return {};
}

void WordPieceModel::encode(std::string_view word, std::vector<TokenPiece>& pieces) const {
  const size_t before = pieces.size();
  const auto is_first_byte = [](char byte) { return (byte & 0xC0) != 0x80; };
  bool covered = std::count_if(word.begin(), word.end(), is_first_byte) <= options_.max_characters;
  for (size_t done = 0; covered && done < word.size();) {
    TokenPiece piece = longest(word.substr(done), done > 0);
    covered = piece.end > 0;
    piece.begin += done;
    piece.end += done;
    done = piece.end;
    pieces.push_back(piece);
  }
  if (covered) return;
  pieces.resize(before);
  pieces.push_back({unknown_, 0, uint32_t(word.size())});
}

}  // namespace shardline
