#include "engine/checkpoint/snapshot.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <ranges>

#include "core/error.h"
#include "core/memory/transposing_copy.h"

namespace shardline {
namespace {

bool holds(const SlicePart& slice, const Holding& holding) {
  if (!slice.spec || slice.spec->split_dim < 0)
    return slice.offset == holding.slice.offset && slice.length == holding.slice.length;
  return slice.t == holding.slice.t && slice.offset == holding.slice.offset && slice.length == holding.slice.length;
}

int64_t aligned(int64_t bytes) {
  constexpr int64_t kLine = 64;
  return (bytes + kLine - 1) / kLine * kLine;
}

std::shared_ptr<char> map_memory(size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw RunError(cat("cannot allocate ", bytes, " bytes for the copy of a checkpoint: ", std::strerror(errno)));
  ::madvise(memory, bytes, MADV_HUGEPAGE);  // fewer page faults in the first copy
  return {static_cast<char*>(memory), [bytes](char* mapped) { ::munmap(mapped, bytes); }};
}

// The message to or from a rank, to which a block's boxes are added.
template <class Messages>
auto& message_for(Messages& messages, int peer, at::ScalarType dtype) {
  for (auto& message : messages)
    if (message.peer == peer && message.dtype == dtype) return message;
  messages.push_back({peer, dtype, {}});
  return messages.back();
}

// Calls see(box in `wanted`, box in `held`) for what both have.
template <class See>
void for_common(const std::vector<FileBox>& wanted, const std::vector<FileBox>& held, const See& see) {
  for (const auto& box : wanted)
    for (const auto& other : held)
      if (const FileBox here = intersection(box, other); !is_empty(here)) see(here, intersection(other, box));
}

}  // namespace

Snapshot::Snapshot(const CheckpointContents& contents, const std::vector<HeldPart>& parts, CommunicatorPtr world,
                   const std::vector<WriterGroup>& writers, int64_t block_bytes)
    : contents_(contents),
      world_(std::move(world)),
      block_bytes_(block_bytes),
      plan_(make_block_plan(contents, parts, *world_, writers, block_bytes)),
      parts_(contents.tensors().size()) {
  for (const auto& part : parts) parts_[part.tensor].push_back(part);
  for (const auto& block : plan_.blocks)
    if (block.writer == world_->rank()) blocks_.push_back(block);
  copies_.resize(blocks_.size());
  is_exchanged_.resize(blocks_.size());
  memory_ = map_memory(std::max<int64_t>(std::ssize(blocks_) * block_bytes_, 1));

  std::vector<size_t> seen(world_->size());  // blocks of each writer
  for (const auto& block : plan_.blocks) {
    const size_t index = seen[block.writer]++, round = index / kBlocksOfRound;
    if (rounds_.size() <= round) rounds_.resize(round + 1);
    if (block.writer == world_->rank())
      plan_block(index, block, rounds_[round]);
    else
      plan_messages_to(block, rounds_[round]);
  }
  for (const auto& round : rounds_) {
    int64_t bytes = 0;
    for (const auto* messages : {&round.receives, &round.sends})
      for (const auto& message : *messages) bytes += aligned(message.bytes());
    exchange_bytes_ = std::max(exchange_bytes_, bytes);
  }
  exchange_memory_ = map_memory(std::max<int64_t>(exchange_bytes_, 1));
}

int64_t Snapshot::Message::elements() const {
  int64_t elements = 0;
  for (const auto& box : boxes) elements += box.numel();
  return elements;
}

std::string_view Snapshot::bytes(size_t block) const {
  return {memory_of(block), static_cast<size_t>(blocks_[block].length)};
}

int64_t Snapshot::total_bytes() const {
  int64_t bytes = 0;
  for (const auto& block : blocks_) bytes += block.length;
  return bytes;
}

// Plans how this rank's block is filled.
void Snapshot::plan_block(size_t index, const Block& block, Round& round) {
  char* const memory = memory_of(index);
  const auto& file = *contents_.files()[block.file];
  if (const int64_t head = file.head.size(); block.begin < head)
    std::memcpy(memory, file.head.data() + block.begin, std::min(head - block.begin, block.length));
  for (const auto& range : ranges_of(contents_, block)) {
    const CheckpointTensor& tensor = contents_.tensors()[range.tensor];
    const auto flat = at::from_blob(memory + range.byte_in_block, {range.length}, tensor.dtype);
    const auto wanted = range_boxes(tensor.sizes, range.begin, range.length, flat);
    for (const auto& holding : plan_.holdings[range.tensor]) {
      const int sender = sender_to(block.writer, holding);
      if (sender == world_->rank()) {
        for (const auto& part : parts_[range.tensor])
          if (holds(part.slice, holding))
            for_common(wanted, boxes_of(tensor, part.slice, part.values),
                       [&](const FileBox& here, const FileBox& held) {
                         copies_[index].push_back({held.values, here.values});
                       });
        continue;
      }
      for_common(wanted, boxes_of(tensor, holding.slice, {}), [&](const FileBox& here, const FileBox&) {
        message_for(round.receives, sender, tensor.dtype).boxes.push_back(here.values);
        is_exchanged_[index] = true;
      });
    }
  }
}

// Plans what this rank sends to the writer of a block.
void Snapshot::plan_messages_to(const Block& block, Round& round) {
  for (const auto& range : ranges_of(contents_, block)) {
    if (parts_[range.tensor].empty()) continue;
    const CheckpointTensor& tensor = contents_.tensors()[range.tensor];
    const auto wanted = range_boxes(tensor.sizes, range.begin, range.length, {});
    for (const auto& holding : plan_.holdings[range.tensor]) {
      if (sender_to(block.writer, holding) != world_->rank()) continue;
      for (const auto& part : parts_[range.tensor])
        if (holds(part.slice, holding))
          for_common(wanted, boxes_of(tensor, part.slice, part.values), [&](const FileBox&, const FileBox& held) {
            message_for(round.sends, block.writer, tensor.dtype).boxes.push_back(held.values);
          });
    }
  }
}

// The first failure of copies, on any thread.
class Snapshot::CopyFailure {
 public:
  template <class Copy>
  void attempt(const Copy& copy) {
    try {
      copy();
    } catch (const c10::Error& error) {
      keep(error.what_without_backtrace());
    } catch (const std::exception& error) {
      keep(error.what());
    }
  }
  const std::string& text() const { return text_; }  // empty: there is none

 private:
  void keep(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (text_.empty()) text_ = text;
  }

  std::mutex mutex_;
  std::string text_;
};

std::string Snapshot::take(const std::function<void(size_t block)>& taken) {
  const at::NoGradGuard values_only;
  CopyFailure failure;
  const auto copy = [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      failure.attempt([&] {
        for (const auto& [from, to] : copies_[block]) copy_transposing(to, from);
      });
      if (!is_exchanged_[block]) taken(block);
    }
  };
  const bool on_host =
      std::ranges::all_of(copies_ | std::views::join, [](const Copy& one) { return one.from.is_cpu(); });
  on_host ? at::parallel_for(0, std::ssize(copies_), 1, copy) : copy(0, std::ssize(copies_));
  for (size_t round = 0; round < rounds_.size(); ++round) {
    exchange(rounds_[round], failure);
    const size_t begin = round * kBlocksOfRound, end = std::min(begin + kBlocksOfRound, blocks_.size());
    for (size_t block = begin; block < end; ++block)
      if (is_exchanged_[block]) taken(block);
  }
  return failure.text();
}

void Snapshot::exchange(const Round& round, CopyFailure& failure) {
  char* free = exchange_memory_.get();
  const auto buffer_for = [&](const Message& message) {
    const auto buffer = at::from_blob(free, {message.elements()}, message.dtype);
    free += aligned(message.bytes());
    return buffer;
  };
  // Calls see(box, its elements in the message) for the boxes of a message.
  const auto for_boxes = [](const Message& message, const at::Tensor& buffer, const auto& see) {
    int64_t at = 0;
    for (const auto& box : message.boxes) {
      see(box, buffer.narrow(0, at, box.numel()).view(box.sizes()));
      at += box.numel();
    }
  };
  std::vector<WorkPtr> sending, receiving;
  std::vector<at::Tensor> received;
  for (const auto& message : round.receives) {
    received.push_back(buffer_for(message));
    receiving.push_back(world_->recv(received.back(), message.peer, {.what = "elements of a checkpoint"}));
  }
  for (const auto& message : round.sends) {
    const auto packed = buffer_for(message);
    failure.attempt(
        [&] { for_boxes(message, packed, [](const auto& box, const auto& to) { copy_transposing(to, box); }); });
    sending.push_back(world_->send(packed, message.peer, {.what = "elements of a checkpoint"}));
  }
  for (size_t i = 0; i < receiving.size(); ++i) {
    receiving[i]->wait();
    failure.attempt(
        [&] { for_boxes(round.receives[i], received[i], [](const auto& box, const auto& from) { box.copy_(from); }); });
  }
  for (const auto& work : sending) work->wait();
}

}  // namespace shardline
