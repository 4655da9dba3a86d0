// Which rank writes which bytes of a checkpoint, and where the values come from. Files are cut into blocks of a fixed
// length; one rank writes a whole block, so that ranks write long contiguous ranges and checksums need no other rank.
// A block is written by a rank that holds much of it; ranks that hold the same amount share a run of blocks among
// themselves. The writer receives values that it lacks from one of the ranks that have them.
#pragma once
#include <vector>

#include "core/comm/communicator.h"
#include "engine/checkpoint/contents.h"

namespace shardline {

inline constexpr int64_t kBlockBytes = 4 << 20;  // in a run; tests use smaller blocks

struct Block {
  size_t file;
  int64_t begin, length;  // bytes
  int writer;
};

// Ranks that together write every block.
struct WriterGroup {
  // For each directory that blocks are written to: sets of ranks, each ascending. A file in it is written by the ranks
  // of one set.
  std::vector<std::vector<std::vector<int>>> directories;

  std::vector<int> ranks() const;  // ascending
};

// A slice of a tensor, and the ranks that hold it.
struct Holding {
  size_t tensor;
  SlicePart slice;
  std::vector<int> ranks;  // ascending
};

// Equal on all ranks.
struct BlockPlan {
  std::vector<Block> blocks;                   // by group of writers, then in the order of their bytes
  std::vector<std::vector<Holding>> holdings;  // by tensor
};

// Collective over the world. parts: held by this rank. Throws InvariantError if an element is held by no rank.
BlockPlan make_block_plan(const CheckpointContents& contents, const std::vector<HeldPart>& parts, Communicator& world,
                          const std::vector<WriterGroup>& writers, int64_t block_bytes);

// The elements of a tensor that are in a block, as a range of the flat tensor.
struct BlockRange {
  size_t tensor;
  int64_t begin, length;  // elements of the tensor
  int64_t byte_in_block;  // where its first element begins in the block
};
std::vector<BlockRange> ranges_of(const CheckpointContents& contents, const Block& block);

// The holder that sends its elements to a writer: the writer itself if it holds them.
int sender_to(int writer, const Holding& holding);

}  // namespace shardline
