// Blocks of sequence_length tokens cut from the stream of all documents: the samples of a causal language model.
#pragma once
#include <cstdint>
#include <utility>

#include "engine/data/cache/token_cache.h"

namespace shardline {

// The number of blocks that these tokens fill. Throws DataError if there is none.
int64_t count_blocks(int64_t tokens, int64_t documents, int64_t sequence_length);
// This percentage of the blocks, rounded. Throws DataError if that is none or all of them.
int64_t count_validation_blocks(int64_t blocks, double percentage);

// Groups texts as run_clm does: documents are concatenated without a token in between and cut into blocks; the tokens
// at the end that fill no block are dropped and counted.
class BlockDataset {
 public:
  // Throws DataError if the stream has less than one block.
  BlockDataset(TokenCachePtr tokens, int64_t sequence_length);

  int64_t size() const { return count_; }  // blocks
  int64_t sequence_length() const { return sequence_length_; }
  int64_t dropped_tokens() const { return tokens_->size() % sequence_length_; }  // of the whole stream
  int64_t first_block() const { return first_; }                                 // in the stream
  const TokenCache& tokens() const { return *tokens_; }

  // Block i in [0, size()) to `out`, sequence_length ids.
  void read(int64_t block, int64_t* out) const;

  // The first `count` blocks, or all when there are fewer (max_train_samples, max_eval_samples).
  BlockDataset first(int64_t count) const;
  // {train, validation}: the first `percentage` of the blocks, rounded, are for validation. Throws DataError if
  // one of them would be empty.
  std::pair<BlockDataset, BlockDataset> split_validation(double percentage) const;

 private:
  BlockDataset slice(int64_t first, int64_t count) const;

  TokenCachePtr tokens_;
  int64_t sequence_length_;
  int64_t first_ = 0;
  int64_t count_ = 0;
};

}  // namespace shardline
