#include "engine/data/dataset/block_dataset.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace shardline {

int64_t count_blocks(int64_t tokens, int64_t documents, int64_t sequence_length) {
  SL_ASSERT(sequence_length >= 1, "sequence_length is ", sequence_length);
  if (tokens >= sequence_length) return tokens / sequence_length;
  throw DataError(cat("the data has ", tokens, " tokens in ", documents, " documents, less than one block of ",
                      sequence_length, "; use more data or a smaller data.sequence_length"));
}

int64_t count_validation_blocks(int64_t blocks, double percentage) {
  const int64_t validation = std::llround(blocks * percentage / 100);
  if (validation >= 1 && validation < blocks) return validation;
  throw DataError(cat("data.validation_split_percentage: ", percentage, " % of ", blocks, " samples gives ", validation,
                      " for validation and ", blocks - validation, " for training; both need at least one"));
}

BlockDataset::BlockDataset(TokenCachePtr tokens, int64_t sequence_length)
    : tokens_(std::move(tokens)),
      sequence_length_(sequence_length),
      count_(count_blocks(tokens_->size(), tokens_->documents(), sequence_length)) {}

void BlockDataset::read(int64_t block, int64_t* out) const {
  SL_ASSERT(block >= 0 && block < count_, "block ", block, " of ", count_);
  tokens_->read((first_ + block) * sequence_length_, sequence_length_, out);
}

BlockDataset BlockDataset::first(int64_t count) const {
  return slice(0, std::min(count, count_));
}

std::pair<BlockDataset, BlockDataset> BlockDataset::split_validation(double percentage) const {
  const int64_t validation = count_validation_blocks(count_, percentage);
  return {slice(validation, count_ - validation), slice(0, validation)};
}

BlockDataset BlockDataset::slice(int64_t first, int64_t count) const {
  BlockDataset part = *this;
  part.first_ = first_ + first;
  part.count_ = count;
  return part;
}

}  // namespace shardline
