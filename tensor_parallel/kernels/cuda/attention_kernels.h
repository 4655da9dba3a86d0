// What the attention kernels share besides tiles: the arguments of a launch, and dropout masks, in the arrangement of
// attention_tiles.h. The element of a query and a key has word ((first_head + head) * max_positions + query) *
// max_positions + key of the operation's stream (core/numbers/philox_block.h), so four adjacent keys share a block of
// words.
#pragma once
#include "tensor_parallel/kernels/cuda/attention_tiles.h"

namespace shardline::cuda {

AttentionSizes sizes_of(const AttentionCase& c);
// Whether rows of numbers of this size begin and end on multiples of `bytes`.
bool rows_aligned(const AttentionCase& c, int64_t number_bytes, int64_t bytes, const HeadRows* rows, int count);

// Which of a lane's elements are kept: bit 4 n + i for element i of the n-th of kEights groups of eight columns,
// followed by those of further sets.
template <int kEights>
struct KeptBits {
  SHARDLINE_DEVICE auto columns(int pair) const {
    return [bits = bits >> (8 * pair)](int e, int i) { return (bits >> (4 * e + i) & 1u) != 0; };
  }
  SHARDLINE_DEVICE auto eight(int n) const {
    return [bits = bits >> (4 * n)](int set, int i) { return (bits >> (4 * kEights * set + i) & 1u) != 0; };
  }
  uint32_t bits;
};

// The random words of a head. If max_positions is a multiple of four, each block of words belongs to one query.
class HeadWords {
 public:
  SHARDLINE_DEVICE HeadWords(const AttentionSizes& sizes, const Head& head)
      : drops_(sizes.drops),
        aligned_(sizes.drops && sizes.max_positions % 4 == 0),
        limit_(sizes.limit),
        words_(stream_words(sizes.seed, sizes.op, sizes.step,
                            sizes.drops ? static_cast<uint32_t>(sizes.samples[head.batch]) : 0)),
        keys_(sizes.keys),
        first_row_((sizes.first_head + head.head) * sizes.max_positions),
        max_positions_(sizes.max_positions) {}

  SHARDLINE_DEVICE uint64_t element(int64_t query, int64_t key) const {
    return (first_row_ + query) * max_positions_ + key;
  }
  // Whether the indices of the blocks of all queries from first to last have the same upper half.
  SHARDLINE_DEVICE bool same_upper_half(int64_t first, int64_t last) const {
    return aligned_ && upper_half(element(first, 0) / 4) == upper_half(element(last, max_positions_ - 1) / 4);
  }
  SHARDLINE_DEVICE PhiloxBlock block(uint32_t upper, uint32_t lower) const {
    return words_.block(uint64_t{upper} << 32 | lower, keys_);
  }
  SHARDLINE_DEVICE bool keeps(uint32_t word) const { return word < limit_; }

  // The mask of kCount elements, word by word. place_of(i) returns the query and the key of element i.
  template <int kCount, class PlaceOf>
  SHARDLINE_DEVICE uint32_t one_by_one(const PlaceOf& place_of) const {
    static_assert(kCount <= 32);
    if (!drops_) return ~0u;
    uint32_t kept = 0;
    SHARDLINE_ROLLED
    for (int i = 0; i < kCount; ++i) {
      const auto place = place_of(i);
      const uint64_t e = element(place.query, place.key);
      const PhiloxBlock block = words_.block(e / 4, keys_);
      const uint32_t lower = e % 2 == 0 ? block.word[0] : block.word[1];
      const uint32_t upper = e % 2 == 0 ? block.word[2] : block.word[3];
      kept |= (keeps(e % 4 < 2 ? lower : upper) ? 1u : 0u) << i;
    }
    return kept;
  }

 private:
  bool drops_, aligned_;
  uint32_t limit_;
  StreamWords words_;
  const PhiloxKeys& keys_;
  int64_t first_row_, max_positions_;
};

struct ScorePlace {
  int64_t query, key;
};

// The mask of a warp's 16 queries, which are the rows of the scores.
class MaskOfQueries {
 public:
  SHARDLINE_DEVICE MaskOfQueries(const AttentionSizes& sizes, const Head& head, int64_t first)
      : words_(sizes, head), first_(first), quick_(words_.same_upper_half(first, first + 15)) {
    const uint64_t block = words_.element(first + lane_index() / 4, 4 * (lane_index() % 4)) / 4;
    upper_ = upper_half(words_.element(first, 0) / 4);
    lower_[0] = lower_half(block);
    lower_[1] = lower_[0] + lower_half(2 * sizes.max_positions);  // eight rows of max_positions / 4 blocks
  }

  // Calls use(kept), where kept.columns(pair)(e, i) is true if element i of group of eight 2 * pair + e is kept.
  // Columns begin with `key`, in the order of KeysAsColumns.
  template <int kEights, class Use>
  SHARDLINE_DEVICE void with(int64_t key, const Use& use) const {
    if (quick_) return use(Quick{*this, lower_half(key / 4)});
    const int64_t query = first_ + lane_index() / 4;
    use(KeptBits<kEights>{words_.one_by_one<4 * kEights>([&](int i) -> ScorePlace {
      return {query + i % 4 / 2 * 8, key + KeysAsColumns::key_of(i / 4, i)};
    })});
  }

 private:
  struct Quick {
    SHARDLINE_DEVICE auto columns(int pair) const {
      const uint32_t place = key_block + 4 * pair;
      return [&words = mask.words_, upper = words_of(place, 0), lower = words_of(place, 1)](int e, int i) {
        return words.keeps((i < 2 ? upper : lower).word[2 * e + i % 2]);
      };
    }
    SHARDLINE_DEVICE PhiloxBlock words_of(uint32_t place, int half) const {
      return mask.words_.block(mask.upper_, mask.lower_[half] + place);
    }
    const MaskOfQueries& mask;
    uint32_t key_block;
  };

  HeadWords words_;
  int64_t first_;
  bool quick_;
  uint32_t upper_, lower_[2];
};

// The mask of a warp's 16 * kSets keys, which are the rows of the scores in the order of KeysAsRows.
template <int kSets>
class MaskOfKeys {
 public:
  SHARDLINE_DEVICE MaskOfKeys(const AttentionSizes& sizes, const Head& head, int64_t first)
      : words_(sizes, head), first_(first), query_blocks_(lower_half(sizes.max_positions / 4)) {
    const int query = 2 * (lane_index() % 4) + (kSets == 1 ? lane_index() / 4 % 2 : 0);
    lane_block_ = query * query_blocks_ + lower_half((first + KeysAsRows<kSets>::key_of(0, 0)) / 4);
  }

  // Calls use(kept), where kept.eight(n)(set, i) is true if element i of the n-th group of eight of a set is kept.
  // Columns are queries, beginning with `query`.
  template <int kEights, class Use>
  SHARDLINE_DEVICE void with(int64_t query, const Use& use) const {
    if (words_.same_upper_half(query, query + 8 * kEights - 1)) {
      const uint64_t block = words_.element(query, 0) / 4;
      return use(Quick{*this, upper_half(block), lower_half(block) + lane_block_});
    }
    use(KeptBits<kEights>{words_.one_by_one<4 * kSets * kEights>([&](int i) -> ScorePlace {
      return {query + i / 4 % kEights * 8 + lane_index() % 4 * 2 + i % 2,
              first_ + KeysAsRows<kSets>::key_of(i / 4 / kEights, i % 4)};
    })});
  }

 private:
  struct Quick {
    // With two sets, a lane has four adjacent keys of two queries. With one set, it has two of them; it computes the
    // words of one query and gets those of the other from the lane that has the other two keys.
    SHARDLINE_DEVICE auto eight(int n) const {
      const uint32_t place = lower + 8 * n * mask.query_blocks_;
      PhiloxBlock even = mask.words_.block(upper, place), odd;
      if constexpr (kSets == 2) {
        odd = mask.words_.block(upper, place + mask.query_blocks_);
      } else {
        const bool is_odd = lane_index() / 4 % 2 == 1;
        SHARDLINE_UNROLLED
        for (int j = 0; j < 2; ++j) {
          const uint32_t mine = is_odd ? even.word[2 + j] : even.word[j];
          const uint32_t theirs = shuffle_xor(is_odd ? even.word[j] : even.word[2 + j], 4);
          even.word[j] = is_odd ? theirs : mine;
          odd.word[j] = is_odd ? mine : theirs;
        }
      }
      return [&words = mask.words_, even, odd](int set, int i) {
        return words.keeps((i % 2 == 0 ? even : odd).word[2 * set + i / 2]);
      };
    }
    const MaskOfKeys& mask;
    uint32_t upper, lower;
  };

  HeadWords words_;
  int64_t first_;
  uint32_t query_blocks_, lane_block_;
};

}  // namespace shardline::cuda
