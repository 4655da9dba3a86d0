#include "core/comm/mpi/operations.h"

#include <algorithm>
#include <cstring>

#include "core/comm/communicator_reduce.h"
#include "core/memory/tensor_data.h"

namespace shardline::mpi {
namespace {

constexpr size_t kLargestMessage = size_t{1} << 30;  // MPI counts are of type int
constexpr size_t kChunkBytes = size_t{256} << 10;    // per reduction step: small enough to overlap with its neighbours
constexpr int64_t kWindow = 4;                       // chunks in flight to or from one peer

// Operations without a reduction: all messages are posted immediately.
class ExchangeOperation : public WaitableOperation {
 public:
  using WaitableOperation::WaitableOperation;

  void begin_data(Engine& engine) override {
    engine_ = &engine;
    const int me = lane_.rank, n = lane_.size();
    const auto& [op, input, output] = std::tie(request_.op, request_.input, request_.output);
    const char* from = data_of<char>(input);
    char* to = mutable_data_of<char>(output);
    switch (op) {
      case CommOp::send:
        return send(request_.peer, from, input.nbytes(), Lane::kMessage);
      case CommOp::recv:
        return receive(request_.peer, to, output.nbytes(), Lane::kMessage);
      case CommOp::broadcast:
        if (me != request_.peer) return receive(request_.peer, to, output.nbytes(), Lane::kFirst);
        for (int step = 1; step < n; ++step) send((me + step) % n, from, input.nbytes(), Lane::kFirst);
        return;
      case CommOp::barrier:
        return;  // a barrier ends when every rank has heard from every other
      default:
        break;
    }
    // Sends one part to every other rank and receives one from each.
    const size_t out_part = output.nbytes() / n;
    const size_t in_step = op == CommOp::all_to_all ? out_part : 0;
    for (int step = 1; step < n; ++step) {
      const int source = (me + n - step) % n;
      receive(source, to + source * out_part, out_part, Lane::kFirst);
    }
    for (int step = 1; step < n; ++step) {
      const int target = (me + step) % n;
      send(target, from + target * in_step, out_part, Lane::kFirst);
    }
    if (out_part > 0) std::memmove(to + me * out_part, from + me * in_step, out_part);
  }

  void let_go() override { request_.input = request_.output = at::Tensor(); }

 private:
  void send(int peer, const char* data, size_t bytes, Lane::Phase phase) {
    size_t done = 0;
    do {
      const size_t piece = std::min(bytes - done, kLargestMessage);
      engine_->send(*this, {0, peer, 0}, data + done, piece, lane_.comm, lane_.members[peer],
                    lane_.tag(phase, request_.sequence));
      done += piece;
    } while (done < bytes);
  }

  void receive(int peer, char* data, size_t bytes, Lane::Phase phase) {
    size_t done = 0;
    do {
      const size_t piece = std::min(bytes - done, kLargestMessage);
      engine_->receive(*this, {0, peer, 0}, data + done, piece, lane_.comm, lane_.members[peer],
                       lane_.tag(phase, request_.sequence));
      done += piece;
    } while (done < bytes);
  }

  Engine* engine_ = nullptr;
};

// reduce_scatter, and all_reduce as reduce_scatter + all_gather. Rank j receives part j of all ranks in chunks and adds
// up each chunk in rank order as soon as it is complete. For all_reduce, it sends the sum to all ranks while the next
// chunks arrive.
class ReduceOperation : public WaitableOperation {
 public:
  ReduceOperation(const Lane& lane, CommRequest request)
      : WaitableOperation(lane, std::move(request)),
        element_(request_.input.element_size()),
        chunk_(kChunkBytes / element_),
        gathers_(request_.op == CommOp::all_reduce) {}

  void begin_data(Engine& engine) override {
    const int me = lane_.rank, n = lane_.size();
    slots_ = std::min(kWindow, chunks(me));
    staging_ = std::make_unique_for_overwrite<char[]>(slots_ * n * chunk_ * element_);
    arrived_.assign(chunks(me), 0);
    sent_.resize(n);
    next_send_.assign(n, 0);
    next_result_.assign(n, 0);
    for (int64_t c = 0; c < slots_; ++c) receive_parts(engine, c);
    for (int step = 1; step < n; ++step) {
      const int peer = (me + step) % n;
      sent_[peer].assign(chunks(peer), false);
      while (next_send_[peer] < std::min(kWindow, chunks(peer))) send_part(engine, peer);
    }
    if (n == 1) reduce_ready(engine);
  }

  void completed_data(Engine& engine, const Transfer& transfer) override {
    const int peer = transfer.peer;
    switch (transfer.kind) {
      case kPartSent:
        if (next_send_[peer] < chunks(peer)) send_part(engine, peer);
        sent_[peer][transfer.chunk] = true;
        if (gathers_) receive_results(engine, peer);
        break;
      case kPartReceived:
        ++arrived_[transfer.chunk];
        reduce_ready(engine);
        break;
      default:
        break;  // results need no reply
    }
  }

  void let_go() override {
    request_.input = request_.output = at::Tensor();
    staging_.reset();
  }

 private:
  enum Kind { kPartSent, kPartReceived, kResultSent, kResultReceived };

  // The first element of part j.
  int64_t begin_of(int part) const { return request_.input.numel() * part / lane_.size(); }
  int64_t chunks(int part) const { return (begin_of(part + 1) - begin_of(part) + chunk_ - 1) / chunk_; }
  // Chunk c of part j: its first element in the tensor, and its length.
  int64_t offset(int part, int64_t c) const { return begin_of(part) + c * chunk_; }
  int64_t length(int part, int64_t c) const { return std::min(chunk_, begin_of(part + 1) - offset(part, c)); }

  const char* input(int part, int64_t c) const { return data_of<char>(request_.input) + offset(part, c) * element_; }
  // all_reduce returns the whole tensor, reduce_scatter only this rank's part.
  char* output(int part, int64_t c) const {
    const int64_t place = gathers_ ? offset(part, c) : c * chunk_;
    return mutable_data_of<char>(request_.output) + place * element_;
  }
  char* staging(int peer, int64_t c) const {
    return staging_.get() + ((c % slots_) * lane_.size() + peer) * chunk_ * element_;
  }

  void send_part(Engine& engine, int peer) {
    const int64_t c = next_send_[peer]++;
    engine.send(*this, {kPartSent, peer, c}, input(peer, c), length(peer, c) * element_, lane_.comm,
                lane_.members[peer], lane_.tag(Lane::kFirst, request_.sequence));
  }

  void receive_parts(Engine& engine, int64_t c) {
    for (int peer = 0; peer < lane_.size(); ++peer)
      if (peer != lane_.rank)
        engine.receive(*this, {kPartReceived, peer, c}, staging(peer, c), length(lane_.rank, c) * element_, lane_.comm,
                       lane_.members[peer], lane_.tag(Lane::kFirst, request_.sequence));
  }

  // The sum of a chunk replaces our input for it, so its receive is posted only after that input has been sent.
  void receive_results(Engine& engine, int peer) {
    for (int64_t& c = next_result_[peer]; c < chunks(peer) && sent_[peer][c]; ++c)
      engine.receive(*this, {kResultReceived, peer, c}, output(peer, c), length(peer, c) * element_, lane_.comm,
                     lane_.members[peer], lane_.tag(Lane::kSecond, request_.sequence));
  }

  // Reduces in chunk order, because messages with the same tag match in order.
  void reduce_ready(Engine& engine) {
    const int me = lane_.rank, n = lane_.size();
    for (int64_t& c = next_reduce_; c < chunks(me) && arrived_[c] == n - 1; ++c) {
      std::vector<const void*> inputs;
      for (int peer = 0; peer < n; ++peer) inputs.push_back(peer == me ? input(me, c) : staging(peer, c));
      reduce_in_order(request_.reduce, request_.input.scalar_type(), inputs, {output(me, c)}, length(me, c));
      for (int step = 1; step < n && gathers_; ++step) {
        const int peer = (me + step) % n;
        engine.send(*this, {kResultSent, peer, c}, output(me, c), length(me, c) * element_, lane_.comm,
                    lane_.members[peer], lane_.tag(Lane::kSecond, request_.sequence));
      }
      if (c + slots_ < chunks(me)) receive_parts(engine, c + slots_);
    }
  }

  size_t element_;
  int64_t chunk_;  // elements
  bool gathers_;

  std::unique_ptr<char[]> staging_;  // [slots, size, chunk]
  int64_t slots_ = 0;
  std::vector<int> arrived_;             // by chunk of our part: number of peers whose share has arrived
  int64_t next_reduce_ = 0;              // next chunk of our part
  std::vector<int64_t> next_send_;       // by peer: next chunk of its part
  std::vector<std::vector<bool>> sent_;  // by peer and chunk of its part
  std::vector<int64_t> next_result_;     // by peer: next chunk of its part whose sum has not been requested
};

}  // namespace

int Lane::tag(Phase phase, uint64_t sequence) const {
  const int number = sequence & ((uint64_t{1} << sequence_bits) - 1);
  return ((group << 2) | phase) << sequence_bits | number;
}

WaitableOperation::WaitableOperation(const Lane& lane, CommRequest request)
    : Completion(request.ticket), lane_(lane), request_(std::move(request)) {
  const std::string text = request_.signature();
  std::memcpy(mine_.data(), text.data(), std::min(text.size(), kSignature - 1));
  theirs_.resize(lane_.size());
}

void WaitableOperation::begin(Engine& engine) {
  if (request_.op == CommOp::send) send_signature(engine, request_.peer);
  if (request_.op == CommOp::recv) receive_signature(engine, request_.peer);
  for (int step = 1; step < lane_.size() && phase() == Lane::kFirst; ++step) {
    receive_signature(engine, (lane_.rank + lane_.size() - step) % lane_.size());
    send_signature(engine, (lane_.rank + step) % lane_.size());
  }
  begin_data(engine);
}

void WaitableOperation::completed(Engine& engine, const Transfer& transfer) {
  if (transfer.kind == kSignatureSent) return;
  if (transfer.kind != Transfer::kAgreement) return completed_data(engine, transfer);
  if (const Signature& theirs = theirs_[transfer.peer]; theirs != mine_)
    engine.fail(*this, cat("the ranks disagree about this operation: this one asks for ", mine_.data(), ", rank ",
                           lane_.members[transfer.peer], " for ", theirs.data()));
}

// Posted before the data with the same tag, so that it arrives first.
void WaitableOperation::send_signature(Engine& engine, int peer) {
  engine.send(*this, {kSignatureSent, peer, 0}, mine_.data(), kSignature, lane_.comm, lane_.members[peer],
              lane_.tag(phase(), request_.sequence));
}

void WaitableOperation::receive_signature(Engine& engine, int peer) {
  engine.receive(*this, {Transfer::kAgreement, peer, 0}, theirs_[peer].data(), kSignature, lane_.comm,
                 lane_.members[peer], lane_.tag(phase(), request_.sequence));
}

Lane::Phase WaitableOperation::phase() const {
  return request_.op == CommOp::send || request_.op == CommOp::recv ? Lane::kMessage : Lane::kFirst;
}

std::shared_ptr<WaitableOperation> make_operation(const Lane& lane, CommRequest request) {
  if (request.op == CommOp::all_reduce || request.op == CommOp::reduce_scatter)
    return std::make_shared<ReduceOperation>(lane, std::move(request));
  return std::make_shared<ExchangeOperation>(lane, std::move(request));
}

}  // namespace shardline::mpi
