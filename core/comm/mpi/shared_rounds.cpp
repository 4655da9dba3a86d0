#include "core/comm/mpi/shared_rounds.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/comm/communicator_reduce.h"
#include "core/memory/tensor_data.h"
#include "core/numbers/number_types.h"

namespace shardline::mpi {
namespace {

constexpr int64_t kLine = 64;  // bytes: parts of a round begin at line boundaries, so ranks never write the same line

int64_t rounds_of(int64_t bytes, int64_t bytes_per_round) {
  return std::max<int64_t>(1, (bytes + bytes_per_round - 1) / bytes_per_round);
}

// The largest size for which `size` equal parts fit into a slot, in bytes.
int64_t part_of_slot(int size) {
  return kSlotBytes / size / kLine * kLine;
}

// The address of an empty tensor may be null.
void copy(char* to, const char* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

class RankRounds : public Rounds {
 public:
  RankRounds(const CommRequest& request, int rank, int size)
      : me_(rank), size_(size), from_(data_of<char>(request.input)), to_(mutable_data_of<char>(request.output)) {}

 protected:
  // Each rank visits the others in a different order, so that they do not all read the same slot at the same time.
  template <class Function>
  void for_others(const Function& function) const {
    for (int step = 1; step < size_; ++step) function((me_ + step) % size_);
  }

  int me_, size_;
  const char* from_;
  char* to_;
};

// The range of a rank's part of one round, in bytes.
struct Part {
  int64_t in_input, in_output, in_slot, bytes;
};

// Each rank adds up one part of every round and stores the sum in its own slot, in place of its input.
class ReduceRounds : public RankRounds {
 public:
  ReduceRounds(const CommRequest& request, int rank, int size)
      : RankRounds(request, rank, size), op_(request.reduce), type_(request.input.scalar_type()) {}

  void put(int64_t round, char* const* slots) override {
    for_others([&](int rank) {
      const Part part = part_of(rank, round);
      copy(slots[me_] + part.in_slot, from_ + part.in_input, part.bytes);
    });
  }

  bool combines() const override { return true; }

 protected:
  // Adds this rank's part and stores the sum in all of `outputs`.
  void add_up(const Part& mine, char* const* slots, const std::vector<void*>& outputs) const {
    std::vector<const void*> inputs;
    for (int rank = 0; rank < size_; ++rank)
      inputs.push_back(rank == me_ ? from_ + mine.in_input : slots[rank] + mine.in_slot);
    reduce_in_order(op_, type_, inputs, outputs, mine.bytes / width_of(type_));
  }

  virtual Part part_of(int rank, int64_t round) const = 0;

 private:
  ReduceOp op_;
  at::ScalarType type_;
};

class AllReduceRounds : public ReduceRounds {
 public:
  AllReduceRounds(const CommRequest& request, int rank, int size)
      : ReduceRounds(request, rank, size), bytes_(request.input.nbytes()) {}

  int64_t count() const override { return rounds_of(bytes_, kSlotBytes); }

  void combine(int64_t round, char* const* slots) override {
    const Part mine = part_of(me_, round);
    add_up(mine, slots, {slots[me_] + mine.in_slot, to_ + mine.in_output});
  }

  void take(int64_t round, char* const* slots) override {
    for_others([&](int rank) {
      const Part part = part_of(rank, round);
      copy(to_ + part.in_output, slots[rank] + part.in_slot, part.bytes);
    });
  }

  bool takes_sum_of(int) const override { return true; }

 private:
  Part part_of(int rank, int64_t round) const override {
    const int64_t begin = round * kSlotBytes, length = std::min(kSlotBytes, bytes_ - begin);
    const int64_t share = ((length + size_ - 1) / size_ + kLine - 1) / kLine * kLine;
    const int64_t first = std::min(length, rank * share), last = std::min(length, first + share);
    return {begin + first, begin + first, first, last - first};
  }

  int64_t bytes_;
};

class ReduceScatterRounds : public ReduceRounds {
 public:
  ReduceScatterRounds(const CommRequest& request, int rank, int size)
      : ReduceRounds(request, rank, size), part_(request.output.nbytes()) {}

  int64_t count() const override { return rounds_of(part_, part_of_slot(size_)); }

  void combine(int64_t round, char* const* slots) override {
    const Part mine = part_of(me_, round);
    add_up(mine, slots, {to_ + mine.in_output});
  }

  void take(int64_t, char* const*) override {}

 private:
  Part part_of(int rank, int64_t round) const override {
    const int64_t share = part_of_slot(size_), begin = round * share;
    return {rank * part_ + begin, begin, rank * share, std::min(share, part_ - begin)};
  }

  int64_t part_;
};

class AllToAllRounds : public RankRounds {
 public:
  AllToAllRounds(const CommRequest& request, int rank, int size)
      : RankRounds(request, rank, size), part_(int64_t(request.input.nbytes()) / size) {}

  int64_t count() const override { return rounds_of(part_, share_); }

  void put(int64_t round, char* const* slots) override {
    for_others(
        [&](int rank) { copy(slots[me_] + rank * share_, from_ + rank * part_ + round * share_, length(round)); });
    copy(to_ + me_ * part_ + round * share_, from_ + me_ * part_ + round * share_, length(round));
  }

  void take(int64_t round, char* const* slots) override {
    for_others([&](int rank) { copy(to_ + rank * part_ + round * share_, slots[rank] + me_ * share_, length(round)); });
  }

  bool takes_input_of(int) const override { return true; }

 private:
  int64_t length(int64_t round) const { return std::min(share_, part_ - round * share_); }

  int64_t part_;
  int64_t share_ = part_of_slot(size_);
};

// all_gather copies the input of every rank to all ranks, broadcast copies the root's. barrier copies nothing, but no
// rank leaves before all have arrived.
class SpreadRounds : public RankRounds {
 public:
  SpreadRounds(const CommRequest& request, int rank, int size)
      : RankRounds(request, rank, size),
        root_(request.op == CommOp::broadcast ? request.peer : -1),
        bytes_(request.input.defined() ? request.input.nbytes() : 0) {}

  int64_t count() const override { return rounds_of(bytes_, kSlotBytes); }

  void put(int64_t round, char* const* slots) override {
    if (root_ >= 0 && root_ != me_) return;
    const char* const input = from_ + round * kSlotBytes;
    copy(slots[me_], input, length(round));
    if (char* const own = output_of(me_, round); own != input) copy(own, input, length(round));
  }

  void take(int64_t round, char* const* slots) override {
    for_others([&](int rank) {
      if (takes_input_of(rank)) copy(output_of(rank, round), slots[rank], length(round));
    });
  }

  bool takes_input_of(int rank) const override { return root_ < 0 || root_ == rank; }

 private:
  int64_t length(int64_t round) const { return std::min(kSlotBytes, bytes_ - round * kSlotBytes); }
  char* output_of(int rank, int64_t round) const { return to_ + (root_ < 0 ? rank * bytes_ : 0) + round * kSlotBytes; }

  int root_;  // -1: every rank
  int64_t bytes_;
};

}  // namespace

std::unique_ptr<Rounds> make_rounds(const CommRequest& request, int rank, int size) {
  switch (request.op) {
    case CommOp::all_reduce:
      return std::make_unique<AllReduceRounds>(request, rank, size);
    case CommOp::reduce_scatter:
      return std::make_unique<ReduceScatterRounds>(request, rank, size);
    case CommOp::all_to_all:
      return std::make_unique<AllToAllRounds>(request, rank, size);
    default:
      return std::make_unique<SpreadRounds>(request, rank, size);
  }
}

}  // namespace shardline::mpi
