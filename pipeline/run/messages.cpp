#include "pipeline/run/messages.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "core/comm/timeouts.h"
#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/memory/caching_allocator.h"

namespace shardline {
namespace {

// Describes a message with the same words at both ends.
std::string border_name(const Instruction& message) {
  const bool activation = message.op == Op::send_activation || message.op == Op::recv_activation;
  const int chunk = message.op == Op::send_activation ? message.chunk + 1
                    : message.op == Op::send_gradient ? message.chunk - 1
                                                      : message.chunk;
  return cat(activation ? "activation" : "gradient", ", microbatch ", message.microbatch, ", chunk ", chunk);
}

using StagePairs = std::vector<std::pair<int, int>>;

// Distributes the pairs over rounds in which each stage has at most one partner.
std::vector<StagePairs> rounds_of(const StagePairs& pairs) {
  std::vector<StagePairs> rounds;
  for (const auto& pair : pairs) {
    const auto is_free = [&](const StagePairs& round) {
      return std::none_of(round.begin(), round.end(), [&](const auto& other) {
        return other.first == pair.first || other.first == pair.second || other.second == pair.first ||
               other.second == pair.second;
      });
    };
    auto round = std::find_if(rounds.begin(), rounds.end(), is_free);
    if (round == rounds.end()) round = rounds.emplace(rounds.end());
    round->push_back(pair);
  }
  return rounds;
}

}  // namespace

Messages::Messages(Communicator& pp, at::TensorOptions options)
    : pp_(pp), stage_(pp.rank()), stages_(pp.size()), options_(options) {}

// Every stage takes part in creating all channels, in the same order, even those that it does not use.
void Messages::connect(const std::vector<int>& stage_of_chunk) {
  StagePairs fresh;
  for (size_t chunk = 1; chunk < stage_of_chunk.size(); ++chunk) {
    const auto pair = std::minmax(stage_of_chunk[chunk - 1], stage_of_chunk[chunk]);
    if (pair.first != pair.second && connected_.insert(pair).second) fresh.emplace_back(pair);
  }
  for (const auto& round : rounds_of(fresh))
    for (const bool upwards : {true, false}) {
      StagePair mine{-1, -1};
      for (const auto& pair : round)
        if (pair.first == stage_ || pair.second == stage_) mine = pair;
      const bool alone = mine.first < 0;
      const auto [from, to] = upwards ? mine : StagePair{mine.second, mine.first};
      auto made = pp_.split(alone ? stages_ + stage_ : mine.first, cat("pp ", from, ">", to));
      if (alone) continue;
      exchange_first_message(*made, stage_ == from);
      channels_[{from, to}] = std::move(made);
    }
}

// The first message of a channel makes NCCL establish a connection. This requires both ends, and CUDA may wait for
// everything running on the device, so a receive posted ahead could wait for work after it. Therefore one message is
// exchanged, and waited for, while nothing else is in flight: both ends are in the same round.
void Messages::exchange_first_message(Communicator& channel, bool sends) {
  const at::Tensor message = at::zeros({1}, options_);
  const CommOptions options{.what = "first message of a channel", .timeout = timeouts().start_up};
  const int other = 1 - channel.rank();
  (sends ? channel.send(message, other, options) : channel.recv(message, other, options))->wait();
  on_host(message, "the first message of a channel");
}

Communicator& Messages::channel(int from, int to) {
  const auto found = channels_.find({from, to});
  SL_ASSERT(found != channels_.end(), "stages ", from, " and ", to, " of ", stages_, " have no neighbouring chunks");
  return *found->second;
}

void Messages::begin(const Schedule& schedule, Shapes shapes, bool posts_ahead) {
  connect(schedule.stage_of_chunk);
  shapes_ = std::move(shapes);
  posts_ahead_ = posts_ahead;
  incoming_.clear();
  for (const auto& instruction : schedule.instructions[stage_])
    if (instruction.op == Op::recv_activation || instruction.op == Op::recv_gradient)
      incoming_[instruction.peer].expected.push_back(&instruction);
  for (auto& [peer, incoming] : incoming_) prepare_next(incoming);
}

// Allocates the next message's memory even if its receive is not posted ahead, so that all runs need the same amount.
void Messages::prepare_next(Incoming& incoming) {
  if (incoming.expected.empty()) return;
  const Instruction& instruction = *incoming.expected.front();
  incoming.expected.pop_front();
  const MemoryScope scope(MemoryClass::communication);
  Message message;
  for (const auto& sizes : shapes_(instruction)) message.border.push_back(at::empty(sizes, options_));
  if (posts_ahead_) post(instruction, message);
  incoming.next = std::move(message);
}

void Messages::post(const Instruction& receive, Message& message) {
  Communicator& from_peer = channel(receive.peer, stage_);
  const std::string what = border_name(receive);
  for (const auto& tensor : message.border)
    message.works.push_back(from_peer.recv(tensor, 1 - from_peer.rank(), {.what = what.c_str()}));
  for (const auto& work : message.works) work->start();
}

Border Messages::receive(const Instruction& instruction) {
  auto& incoming = incoming_.at(instruction.peer);
  SL_ASSERT(incoming.next, to_string(instruction), " comes out of turn");
  Message message = *std::exchange(incoming.next, std::nullopt);
  if (!posts_ahead_) post(instruction, message);
  for (const auto& work : message.works) work->wait();
  prepare_next(incoming);
  return std::move(message.border);
}

void Messages::send(const Border& border, const Instruction& instruction) {
  forget_finished_sends();
  Communicator& to_peer = channel(stage_, instruction.peer);
  Message message;
  const std::string what = border_name(instruction);
  for (const auto& tensor : border) {
    message.border.push_back(tensor.detach().contiguous());
    message.works.push_back(to_peer.send(message.border.back(), 1 - to_peer.rank(), {.what = what.c_str()}));
  }
  for (const auto& work : message.works) work->start();
  sends_.push_back(std::move(message));
}

void Messages::forget_finished_sends() {
  std::erase_if(sends_, [](Message& message) {
    return std::all_of(message.works.begin(), message.works.end(), [](const WorkPtr& work) { return work->poll(); });
  });
}

void Messages::finish() {
  for (auto& message : sends_)
    for (const auto& work : message.works) work->wait();
  sends_.clear();
  for (const auto& [peer, incoming] : incoming_)
    SL_ASSERT(!incoming.next && incoming.expected.empty(), "messages of stage ", peer, " were not received");
}

}  // namespace shardline
