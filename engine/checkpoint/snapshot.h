// A copy of this rank's blocks of a checkpoint in host memory, so that training can change the original values.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/block_plan.h"

namespace shardline {

class Snapshot {
 public:
  // Collective over the world, as is take(). parts: held by this rank; their memory must stay where it is. Each group
  // writes all blocks.
  Snapshot(const CheckpointContents& contents, const std::vector<HeldPart>& parts, CommunicatorPtr world,
           const std::vector<WriterGroup>& writers, int64_t block_bytes);
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Copies the current values and calls taken(block) when all bytes of a block are there, in any order and from any
  // thread. Returns why this rank could not copy all values, or an empty string if it could. If it could not, it has
  // still exchanged all messages and called taken() for every block, so that no other rank waits for it, but some bytes
  // are wrong, on other ranks as well. Throws DistributedError if messages fail. Writers receive the elements of
  // kBlocksOfRound blocks at a time: more would need more memory, fewer would need more time for messages.
  static constexpr size_t kBlocksOfRound = 8;
  std::string take(const std::function<void(size_t block)>& taken);

  const std::vector<Block>& blocks_of_all() const { return plan_.blocks; }  // see BlockPlan
  const std::vector<Block>& blocks() const { return blocks_; }    // those that this rank writes, by their bytes
  std::string_view bytes(size_t block) const;                     // from the last take(); aligned to pages
  std::shared_ptr<const void> memory() const { return memory_; }  // holds all blocks; may outlive the snapshot
  int64_t total_bytes() const;
  // Host memory for blocks and messages. It is used from the first take() on.
  int64_t memory_bytes() const { return std::ssize(blocks_) * block_bytes_ + exchange_bytes_; }

 private:
  struct Copy {
    at::Tensor from, to;
  };
  struct Message {
    int peer;
    at::ScalarType dtype;
    std::vector<at::Tensor> boxes;  // in the order in which both ranks see them
    int64_t elements() const;
    int64_t bytes() const { return elements() * static_cast<int64_t>(c10::elementSize(dtype)); }
  };
  struct Round {
    std::vector<Message> sends, receives;  // at most one for each peer and dtype
  };
  class CopyFailure;
  char* memory_of(size_t block) const { return memory_.get() + static_cast<int64_t>(block) * block_bytes_; }
  void plan_block(size_t index, const Block& block, Round& round);
  void plan_messages_to(const Block& block, Round& round);
  void exchange(const Round& round, CopyFailure& failure);

  const CheckpointContents& contents_;
  CommunicatorPtr world_;
  int64_t block_bytes_;
  BlockPlan plan_;
  std::vector<std::vector<HeldPart>> parts_;  // this rank's parts, by tensor
  std::vector<Block> blocks_;
  std::shared_ptr<char> memory_;
  std::vector<std::vector<Copy>> copies_;  // copies of values that this rank holds, by block
  std::vector<bool> is_exchanged_;         // by block: whether elements come from other ranks
  std::vector<Round> rounds_;              // each one completes the next kBlocksOfRound blocks of every rank
  int64_t exchange_bytes_ = 0;             // bytes of the largest round
  std::shared_ptr<char> exchange_memory_;
};

}  // namespace shardline
