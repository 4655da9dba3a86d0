#include "engine/data/tokenizer/bpe_model.h"

#include <atomic>
#include <functional>
#include <queue>

#include "core/error.h"
#include "engine/data/text/byte_level.h"
#include "engine/data/text/utf8.h"
#include "engine/data/tokenizer/steps/byte_tokens.h"

namespace shardline {
namespace {

constexpr size_t kRememberedBytes = 256;      // longer words are unlikely to occur again
constexpr size_t kRememberedWords = 1 << 17;  // a thread that remembers this many forgets them all

struct WordHash {
  using is_transparent = void;
  size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
};

struct WordMemory {
  uint64_t instance = 0;
  std::unordered_map<std::string, std::vector<int32_t>, WordHash, std::equal_to<>> words;
};

WordMemory& memory_of_this_thread(uint64_t instance) {
  thread_local WordMemory memory;
  if (memory.instance != instance || memory.words.size() > kRememberedWords) {
    memory.words.clear();
    memory.instance = instance;
  }
  return memory;
}

uint64_t pair_key(uint32_t left, uint32_t right) {
  return uint64_t{left} << 32 | right;
}

constexpr int32_t kGone = -1;

struct Candidate {
  int32_t rank;
  int64_t left;
  int32_t id;  // the merged symbol's
  bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : left > other.left; }
};

// The character that a token is; nothing if it is not exactly one.
std::optional<char32_t> single_character(std::string_view token) {
  if (token.empty()) return std::nullopt;
  size_t end = 0;
  const char32_t character = next_code_point(token, end);
  return end == token.size() ? std::optional(character) : std::nullopt;
}

}  // namespace

// A part of a word while it is merged: an element of a list.
struct BpeModel::Symbol {
  int32_t id;     // kGone after it was merged into its left neighbour
  uint32_t size;  // bytes
  int64_t previous;
  int64_t next;
};

BpeModel::BpeModel(const std::unordered_map<std::string, int32_t>& ids, const BpeVocabulary& vocabulary)
    : byte_level_(vocabulary.byte_level),
      byte_fallback_(vocabulary.byte_fallback),
      fuse_unknown_(vocabulary.fuse_unknown) {
  static std::atomic<uint64_t> instances{0};
  instance_ = ++instances;
  const auto id_of = [&](const std::string& token, const char* role) {
    const auto found = ids.find(token);
    if (found == ids.end()) {
      throw DataError(cat("the vocabulary has no token '", token, "', which is ", role));
    }
    return found->second;
  };
  if (byte_level_) {
    for (int byte = 0; byte < 256; ++byte) {
      const auto found = ids.find(byte_level_alphabet()[byte]);
      byte_ids_[byte] = found == ids.end() ? kNoByteToken : found->second;
    }
  } else {
    byte_ids_ = byte_token_ids(ids);
    for (const auto& [token, id] : ids) {
      if (const auto character = single_character(token)) character_ids_[*character] = id;
    }
  }
  if (vocabulary.unknown) unknown_ = id_of(*vocabulary.unknown, "its unk_token");
  for (int32_t rank = 0; rank < std::ssize(vocabulary.merges); ++rank) {
    const auto& [left, right] = vocabulary.merges[rank];
    const uint64_t pair = pair_key(id_of(left, "part of a merge"), id_of(right, "part of a merge"));
    merges_[pair] = {rank, id_of(left + right, "the result of a merge")};
  }
  if (vocabulary.ignore_merges) {
    for (const auto& [token, id] : ids) {
      if (!byte_level_) {
        whole_words_[token] = id;
      } else if (auto bytes = bytes_of_byte_level(token)) {
        whole_words_[*bytes] = id;
      }
    }
  }
  if (byte_level_) find_never_joined(vocabulary);
}

// A symbol is a byte, the unknown token, or the result of a merge. The neighbours in a merge of the bytes of an unknown
// token are not known, so pairs with such bytes count as joined.
void BpeModel::find_never_joined(const BpeVocabulary& vocabulary) {
  for (int left = 0; left < 256; ++left) {
    for (int right = 0; right < 256; ++right) {
      never_joined_[left << 8 | right] = byte_ids_[left] != kNoByteToken && byte_ids_[right] != kNoByteToken;
    }
  }
  const auto join = [&](const std::string& bytes) {
    for (size_t i = 1; i < bytes.size(); ++i) never_joined_[pair_of_bytes(bytes[i - 1], bytes[i])] = false;
  };
  for (const auto& [left, right] : vocabulary.merges) {
    const auto bytes = bytes_of_byte_level(left + right);
    if (!bytes) return void(never_joined_.reset());  // contains an unknown token whose name has other characters
    join(*bytes);
  }
  for (const auto& [bytes, id] : whole_words_) join(bytes);
}

void BpeModel::encode(std::string_view word, bool whole, std::vector<int32_t>& ids) const {
  if (word.size() > kRememberedBytes || (!whole && !whole_words_.empty())) {
    if (whole) {
      const auto found = whole_or_merged(word);
      ids.insert(ids.end(), found.begin(), found.end());
    } else {
      append_ids(merged(word), ids);
    }
    return;
  }
  auto& words = memory_of_this_thread(instance_).words;
  auto known = words.find(word);
  if (known == words.end()) known = words.emplace(std::string(word), whole_or_merged(word)).first;
  ids.insert(ids.end(), known->second.begin(), known->second.end());
}

void BpeModel::encode(std::string_view word, std::vector<TokenPiece>& pieces) const {
  const auto whole = whole_words_.empty() ? whole_words_.end() : whole_words_.find(std::string(word));
  if (whole != whole_words_.end()) return pieces.push_back({whole->second, 0, uint32_t(word.size())});
  uint32_t begin = 0;
  for (const Symbol& symbol : merged(word)) {
    if (symbol.id == kGone) continue;
    pieces.push_back({symbol.id, begin, begin + symbol.size});
    begin += symbol.size;
  }
}

std::vector<int32_t> BpeModel::whole_or_merged(std::string_view word) const {
  const auto whole = whole_words_.find(std::string(word));
  if (whole != whole_words_.end()) return {whole->second};
  std::vector<int32_t> ids;
  append_ids(merged(word), ids);
  return ids;
}

void BpeModel::append_ids(const std::vector<Symbol>& symbols, std::vector<int32_t>& ids) {
  for (const Symbol& symbol : symbols) {
    if (symbol.id != kGone) ids.push_back(symbol.id);
  }
}

// The id of a byte or a character; kNoByteToken if it has none.
int32_t BpeModel::id_of(std::string_view unit) const {
  if (byte_level_) {
    const unsigned char byte = unit[0];
    return byte_ids_[byte];
  }
  size_t offset = 0;
  const auto found = character_ids_.find(next_code_point(unit, offset));
  return found == character_ids_.end() ? kNoByteToken : found->second;
}

std::vector<BpeModel::Symbol> BpeModel::symbols(std::string_view word) const {
  std::vector<Symbol> list;
  list.reserve(word.size());
  uint32_t unknown_bytes = 0;  // bytes of an unknown token that is not in the list yet
  const auto flush_unknown = [&] {
    if (unknown_bytes > 0) list.push_back({*unknown_, unknown_bytes, 0, 0});
    unknown_bytes = 0;
  };
  for (size_t offset = 0; offset < word.size();) {
    const size_t begin = offset++;
    if (!byte_level_) next_code_point(word, offset = begin);
    const std::string_view unit = word.substr(begin, offset - begin);
    const int32_t id = id_of(unit);
    if (id != kNoByteToken) {
      flush_unknown();
      list.push_back({id, uint32_t(unit.size()), 0, 0});
    } else if (byte_fallback_ && has_all_bytes(byte_ids_, unit)) {
      // As in the reference library, tokens of bytes come before the token of unknown characters that precede them in
      // the text.
      for (const unsigned char byte : unit) list.push_back({byte_ids_[byte], 1, 0, 0});
    } else {
      if (!unknown_) refuse_unknown(unit);
      if (!fuse_unknown_) flush_unknown();
      unknown_bytes += unit.size();
    }
  }
  flush_unknown();
  const int64_t count = list.size();
  for (int64_t i = 0; i < count; ++i) {
    list[i].previous = i - 1;
    list[i].next = i + 1 < count ? i + 1 : -1;
  }
  return list;
}

void BpeModel::refuse_unknown(std::string_view unit) const {
  const unsigned char byte = unit[0];
  if (byte_level_) throw DataError(cat("the tokenizer has no token for byte ", int{byte}, " and no unk_token"));
  throw DataError(cat("the tokenizer has no token for the character '", unit, "' and no unk_token"));
}

const BpeModel::Merge* BpeModel::find_merge(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

// Merges the best-ranked pair, the leftmost of equal ones, until no pair is left.
std::vector<BpeModel::Symbol> BpeModel::merged(std::string_view word) const {
  std::vector<Symbol> list = symbols(word);
  const int64_t count = list.size();

  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](int64_t left) {
    if (left < 0 || list[left].next < 0) return;
    const Merge* merge = find_merge(list[left].id, list[list[left].next].id);
    if (merge) queue.push({merge->rank, left, merge->id});
  };
  for (int64_t i = 0; i < count; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = list[best.left];
    if (left.id == kGone || left.next < 0) continue;
    Symbol& right = list[left.next];
    const Merge* merge = find_merge(left.id, right.id);
    if (!merge || merge->id != best.id) continue;  // a neighbour has been merged since
    left.id = best.id;
    left.size += right.size;
    left.next = right.next;
    right.id = kGone;
    if (left.next >= 0) list[left.next].previous = best.left;
    consider(best.left);
    consider(left.previous);
  }
  return list;
}

}  // namespace shardline
