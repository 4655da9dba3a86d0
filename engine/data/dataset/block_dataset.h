// Blocks of sequence_length tokens cut from the stream of all documents: the samples of a causal language model.
#pragma once
#include <cstdint>
#include <utility>

#include "engine/data/cache/token_cache.h"

namespace shardline {

// Blocks that these tokens fill. DataError with the numbers when there is none.
int64_t count_blocks(int64_t tokens, int64_t documents, int64_t sequence_length);
// `percentage` of them, rounded. DataError when these are none or all.
int64_t count_validation_blocks(int64_t blocks, double percentage);

// As run_clm groups texts: documents one after the other with no token between, cut into blocks; what is left at the
// end and fills no block is left out and counted.
class BlockDataset {
 public:
  // DataError with the numbers when the stream has less than one block.
  BlockDataset(TokenCachePtr tokens, int64_t sequence_length);

  int64_t size() const { return count_; }  // blocks
  int64_t sequence_length() const { return sequence_length_; }
  int64_t dropped_tokens() const { return tokens_->size() % sequence_length_; }  // of the whole stream
  const TokenCache& tokens() const { return *tokens_; }

  // Block i in [0, size()) to `out`, sequence_length ids.
  void read(int64_t block, int64_t* out) const;

  // The first `count` blocks, or all when there are fewer (max_train_samples, max_eval_samples).
  BlockDataset first(int64_t count) const;
  // {train, validation}: the first `percentage` of the blocks, rounded, are for validation. DataError when one of both
  // would be empty.
  std::pair<BlockDataset, BlockDataset> split_validation(double percentage) const;

 private:
  BlockDataset slice(int64_t first, int64_t count) const;

  TokenCachePtr tokens_;
  int64_t sequence_length_;
  int64_t first_ = 0;
  int64_t count_ = 0;
};

}  // namespace shardline
