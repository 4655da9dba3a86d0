#include "engine/data/tokenizer/bpe_model.h"

#include <atomic>
#include <functional>
#include <queue>

#include "core/error.h"
#include "engine/data/text/byte_level.h"

namespace shardline {
namespace {

constexpr size_t kRememberedBytes = 256;      // longer words are unlikely to occur again
constexpr size_t kRememberedWords = 1 << 17;  // then a thread forgets all words

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

// A word while it is merged: a list of symbols by position.
struct Symbol {
  int32_t id;  // kGone after it was merged into its left neighbour
  int64_t previous;
  int64_t next;
};
constexpr int32_t kGone = -1;

struct Candidate {
  int32_t rank;
  int64_t left;
  int32_t id;  // the merged symbol's
  bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : left > other.left; }
};

}  // namespace

BpeModel::BpeModel(const BpeVocabulary& vocabulary) : fuse_unknown_(vocabulary.fuse_unknown) {
  static std::atomic<uint64_t> instances{0};
  instance_ = ++instances;
  const auto id_of = [&](const std::string& token, const char* role) {
    const auto found = vocabulary.ids.find(token);
    if (found == vocabulary.ids.end()) {
      throw DataError(cat("the vocabulary has no token '", token, "', which is ", role));
    }
    return found->second;
  };
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = vocabulary.ids.find(byte_level_alphabet()[byte]);
    byte_ids_[byte] = found == vocabulary.ids.end() ? kGone : found->second;
  }
  if (vocabulary.unknown) unknown_ = id_of(*vocabulary.unknown, "its unk_token");
  for (int32_t rank = 0; rank < std::ssize(vocabulary.merges); ++rank) {
    const auto& [left, right] = vocabulary.merges[rank];
    const uint64_t pair = pair_key(id_of(left, "part of a merge"), id_of(right, "part of a merge"));
    merges_[pair] = {rank, id_of(left + right, "the result of a merge")};
  }
  if (vocabulary.ignore_merges) {
    for (const auto& [token, id] : vocabulary.ids) {
      if (auto bytes = bytes_of_byte_level(token)) whole_words_[*bytes] = id;
    }
  }
  find_never_joined(vocabulary);
}

// A symbol is a byte, the unknown token, or the result of a merge. The neighbours in a merge of the bytes of an unknown
// token are not known, so pairs with such bytes count as joined.
void BpeModel::find_never_joined(const BpeVocabulary& vocabulary) {
  for (int left = 0; left < 256; ++left) {
    for (int right = 0; right < 256; ++right) {
      never_joined_[left << 8 | right] = byte_ids_[left] != kGone && byte_ids_[right] != kGone;
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
    const auto found = whole ? whole_or_merged(word) : merged(word);
    ids.insert(ids.end(), found.begin(), found.end());
    return;
  }
  auto& words = memory_of_this_thread(instance_).words;
  auto known = words.find(word);
  if (known == words.end()) known = words.emplace(std::string(word), whole_or_merged(word)).first;
  ids.insert(ids.end(), known->second.begin(), known->second.end());
}

std::vector<int32_t> BpeModel::whole_or_merged(std::string_view word) const {
  const auto whole = whole_words_.find(std::string(word));
  return whole == whole_words_.end() ? merged(word) : std::vector<int32_t>{whole->second};
}

std::vector<int32_t> BpeModel::symbols(std::string_view word) const {
  std::vector<int32_t> ids;
  ids.reserve(word.size());
  bool after_unknown = false;
  for (const unsigned char byte : word) {
    const bool known = byte_ids_[byte] != kGone;
    if (!known && !unknown_) {
      throw DataError(cat("the tokenizer has no token for byte ", int{byte}, " and no unk_token"));
    }
    if (known || !after_unknown || !fuse_unknown_) ids.push_back(known ? byte_ids_[byte] : *unknown_);
    after_unknown = !known;
  }
  return ids;
}

const BpeModel::Merge* BpeModel::find_merge(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

// Merges the best-ranked pair, the leftmost of equal ones, until no pair is left.
std::vector<int32_t> BpeModel::merged(std::string_view word) const {
  const std::vector<int32_t> start = symbols(word);
  const int64_t count = start.size();
  std::vector<Symbol> list(count);
  for (int64_t i = 0; i < count; ++i) list[i] = {start[i], i - 1, i + 1 < count ? i + 1 : -1};

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
    left.next = right.next;
    right.id = kGone;
    if (left.next >= 0) list[left.next].previous = best.left;
    consider(best.left);
    consider(left.previous);
  }
  std::vector<int32_t> ids;
  for (const Symbol& symbol : list) {
    if (symbol.id != kGone) ids.push_back(symbol.id);
  }
  return ids;
}

}  // namespace shardline
