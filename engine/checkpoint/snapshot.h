// A copy of this rank's blocks of a checkpoint in host memory: what training goes on to change is safe there.
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
  // Collective over the world, as is take(). parts: of this rank; their memory must stay where it is. writers: see
  // make_block_plan.
  Snapshot(const CheckpointContents& contents, const std::vector<HeldPart>& parts, CommunicatorPtr world,
           const std::vector<std::vector<int>>& writers, int64_t block_bytes);
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Memory for the messages of a take(): every rank sends and receives the elements of at most one block at a time.
  // Throws HostMemoryError. To be called before any rank begins with take(), which needs no more memory.
  at::Tensor message_memory() const;
  // Copies the present values and calls taken(block) when all bytes of a block are there, in any order and from any
  // thread. Returns why this rank could not copy all values; empty: it could. If it could not, it has still exchanged
  // all messages and called taken() for every block, so that no other rank waits for it, but bytes are wrong, on other
  // ranks too. Throws DistributedError where messages fail.
  std::string take(const at::Tensor& message_memory, const std::function<void(size_t block)>& taken);

  const std::vector<Block>& blocks_of_all() const { return plan_.blocks; }  // see BlockPlan
  const std::vector<Block>& blocks() const { return blocks_; }    // that this rank writes, in the order of their bytes
  std::string_view bytes(size_t block) const;                     // of the last take(); aligned to pages
  std::shared_ptr<const void> memory() const { return memory_; }  // of all blocks: it may outlive the snapshot
  int64_t total_bytes() const;
  int64_t memory_bytes() const { return std::ssize(blocks_) * block_bytes_; }  // once it was taken; none before

 private:
  struct Copy {
    at::Tensor from, to;
  };
  struct Message {
    int peer;
    std::vector<at::Tensor> boxes;  // in the order in which both ranks see them
    at::ScalarType dtype;
  };
  struct Round {
    std::vector<Message> sends, receives;
  };
  class CopyFailure;
  static int64_t bytes_of(const Message& message);
  char* memory_of(size_t block) const { return memory_.get() + static_cast<int64_t>(block) * block_bytes_; }
  void plan_block(size_t index, const Block& block);
  void plan_messages_to(const Block& block, Round& round);
  void exchange(const Round& round, const at::Tensor& memory, CopyFailure& failure);

  const CheckpointContents& contents_;
  CommunicatorPtr world_;
  int64_t block_bytes_;
  BlockPlan plan_;
  std::vector<std::vector<HeldPart>> parts_;  // of this rank, by tensor
  std::vector<Block> blocks_;
  std::shared_ptr<char> memory_;
  std::vector<std::vector<Copy>> copies_;  // of values that this rank holds, by block
  std::vector<Round> rounds_;              // the n-th one completes the n-th block of every rank
};

}  // namespace shardline
