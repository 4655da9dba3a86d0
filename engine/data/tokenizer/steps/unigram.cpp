#include "engine/data/tokenizer/steps/unigram.h"

#include <algorithm>

#include "core/error.h"
#include "engine/data/text/utf8.h"
#include "engine/data/tokenizer/steps/byte_tokens.h"

namespace shardline {
namespace {

constexpr double kUnknownPenalty = 10;  // below the smallest score

}  // namespace

UnigramModel::UnigramModel(const UnigramVocabulary& vocabulary) : unknown_(vocabulary.unknown) {
  const int64_t count = vocabulary.tokens.size();
  if (unknown_ && (*unknown_ < 0 || *unknown_ >= count))
    throw DataError(cat("the id of the unknown token is ", *unknown_, ", but there are ", count, " tokens"));
  double smallest = 0;
  for (int32_t id = 0; id < count; ++id) {
    const auto& [text, score] = vocabulary.tokens[id];
    smallest = id == 0 ? score : std::min(smallest, score);
    ids_[text] = id;  // the last one with this text
  }
  unknown_score_ = smallest - kUnknownPenalty;
  for (const auto& [text, id] : ids_) {
    if (!text.empty()) sorted_.push_back({text, id, vocabulary.tokens[id].second});
  }
  std::sort(sorted_.begin(), sorted_.end(), [](const Token& a, const Token& b) { return a.text < b.text; });
  for (size_t i = 0; i < sorted_.size(); ++i) {
    const unsigned char byte = sorted_[i].text[0];
    auto& [first, last] = with_first_byte_[byte];
    if (first == last) first = i;
    last = i + 1;
  }
  if (vocabulary.byte_fallback) byte_ids_ = byte_token_ids(ids_);
}

template <class Use>
void UnigramModel::for_each_prefix(std::string_view text, const Use& use) const {
  const unsigned char first_byte = text[0];
  const auto [begin, end] = with_first_byte_[first_byte];
  auto first = sorted_.begin() + begin;
  auto last = sorted_.begin() + end;
  for (size_t size = 1; first != last; ++size) {
    // [first, last) are the tokens that begin with the first `size` bytes; the shortest comes first.
    if (first->text.size() == size) use(*first++);
    if (size == text.size()) break;
    const unsigned char byte = text[size];
    const auto byte_of = [size](const Token& token) {
      const unsigned char found = token.text[size];
      return found;
    };
    first = std::partition_point(first, last, [&](const Token& token) { return byte_of(token) < byte; });
    last = std::partition_point(first, last, [&](const Token& token) { return byte_of(token) == byte; });
  }
}

int32_t UnigramModel::unknown() const {
  if (!unknown_) throw DataError("the tokenizer has no tokens for a part of the text and no unk_id");
  return *unknown_;
}

std::vector<UnigramModel::Place> UnigramModel::best_path(std::string_view word) const {
  std::vector<Place> places(word.size() + 1);
  const auto reach = [&](size_t from, size_t to, int32_t id, double score) {
    Place& place = places[to];
    if (place.reached && score <= place.score) return;
    place = {score, from, id, true};
  };
  for (size_t begin = 0; begin < word.size();) {
    size_t next = begin;
    next_code_point(word, next);
    const double score = places[begin].score;
    bool single = false;  // a token is this character alone
    for_each_prefix(word.substr(begin), [&](const Token& token) {
      const size_t end = begin + token.text.size();
      reach(begin, end, token.id, score + token.score);
      single |= end == next;
    });
    if (!single) reach(begin, next, unknown(), score + unknown_score_);
    begin = next;
  }
  return places;
}

void UnigramModel::encode(std::string_view word, std::vector<TokenPiece>& pieces) const {
  if (word.empty()) return;
  const std::vector<Place> places = best_path(word);
  struct Part {
    size_t begin, end;
    int32_t id;
  };
  std::vector<Part> parts;  // the last one first; neighbouring unknown ones are one
  for (size_t end = word.size(); end > 0; end = places[end].from) {
    const Place& place = places[end];
    const bool joins = !parts.empty() && place.id == unknown_ && parts.back().id == unknown_;
    if (joins) {
      parts.back().begin = place.from;
    } else {
      parts.push_back({place.from, end, place.id});
    }
  }
  std::for_each(parts.rbegin(), parts.rend(), [&](const Part& part) {
    if (part.id == unknown_) return append_unknown(word, part.begin, part.end, pieces);
    pieces.push_back({part.id, uint32_t(part.begin), uint32_t(part.end)});
  });
}

void UnigramModel::append_unknown(std::string_view word, size_t begin, size_t end,
                                  std::vector<TokenPiece>& pieces) const {
  const std::string_view text = word.substr(begin, end - begin);
  const TokenPiece piece{unknown(), uint32_t(begin), uint32_t(end)};
  const auto known = ids_.find(std::string(text));
  if (known != ids_.end()) return pieces.push_back({known->second, piece.begin, piece.end});
  if (!byte_ids_ || !has_all_bytes(*byte_ids_, text)) return pieces.push_back(piece);
  for (const unsigned char byte : text) pieces.push_back({(*byte_ids_)[byte], piece.begin, piece.end});
}

}  // namespace shardline
