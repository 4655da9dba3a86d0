#include "core/comm/mpi/shared_lane.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/error.h"

namespace shardline::mpi {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kSlots = 4;      // rounds by which a rank may be ahead of the slowest
constexpr size_t kSignature = 128;  // characters
// After this time without progress, a rank checks whether its peers are alive. A failing rank reports its error and
// ends the job within this time, so that its peers' errors do not come first.
constexpr std::chrono::seconds kPatience{3};

}  // namespace

// Written only by its rank. Counts that change often and data that rarely changes are on different cache lines.
struct SharedLane::RankState {
  alignas(64) std::atomic<uint64_t> put;
  std::atomic<uint64_t> combined;
  std::atomic<uint64_t> taken;
  alignas(64) char signature[kSlots][kSignature];  // describes the collective whose first round is in the slot
};

size_t SharedLane::bytes_for(int size) {
  return size * (sizeof(RankState) + kSlots * kSlotBytes);
}

SharedLane::SharedLane(std::unique_ptr<SharedSegment> segment, int rank, std::vector<int> members)
    : segment_(std::move(segment)), rank_(rank), members_(std::move(members)) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free, "the counts are shared between processes");
  SL_ASSERT(size() <= kLargestGroup, size(), " ranks share memory");
}

SharedLane::RankState& SharedLane::state(int rank) const {
  return reinterpret_cast<RankState*>(segment_->data() + size() * kSlots * kSlotBytes)[rank];
}

std::vector<char*> SharedLane::slots_of(uint64_t round) const {
  std::vector<char*> slots;
  for (int rank = 0; rank < size(); ++rank)
    slots.push_back(segment_->data() + (rank * kSlots + round % kSlots) * kSlotBytes);
  return slots;
}

void SharedLane::start(CommRequest request, std::shared_ptr<Completion> completion) {
  if (!failure_.empty()) return completion->finish(failure_);
  if (collectives_.empty()) last_look_ = Clock::now();
  Collective collective;
  collective.signature = request.signature().substr(0, kSignature - 1);
  collective.rounds = make_rounds(request, rank_, size());
  collective.begin = end_;
  collective.end = end_ += collective.rounds->count();
  collective.request = std::move(request);
  collective.completion = std::move(completion);
  collectives_.push_back(std::move(collective));
}

bool SharedLane::advance() {
  if (collectives_.empty()) return false;
  try {
    // Steps that others wait for come first, but no round is put far ahead of the rounds taken.
    if (take() || combine() || put()) {
      last_look_ = Clock::now();
      return true;
    }
    check_peers();
  } catch (const DistributedError& error) {
    fail(error.what());
  }
  return false;
}

SharedLane::Collective& SharedLane::collective_of(uint64_t round) {
  return *std::find_if(collectives_.begin(), collectives_.end(), [&](const auto& c) { return round < c.end; });
}

bool SharedLane::put() {
  if (put_ == end_) return false;
  for (int rank = 0; rank < size(); ++rank)
    if (rank != rank_ && state(rank).taken.load(std::memory_order_acquire) + kSlots <= put_) return false;
  Collective& collective = collective_of(put_);
  if (put_ == collective.begin)
    std::memcpy(state(rank_).signature[put_ % kSlots], collective.signature.c_str(), collective.signature.size() + 1);
  collective.rounds->put(put_ - collective.begin, slots_of(put_).data());
  state(rank_).put.store(++put_, std::memory_order_release);
  return true;
}

bool SharedLane::combine() {
  if (combined_ == put_) return false;
  Collective& collective = collective_of(combined_);
  if (collective.rounds->combines()) {
    for (int rank = 0; rank < size(); ++rank)
      if (rank != rank_ && state(rank).put.load(std::memory_order_acquire) <= combined_) return false;
    if (!agree(collective)) return false;
    collective.rounds->combine(combined_ - collective.begin, slots_of(combined_).data());
  }
  state(rank_).combined.store(++combined_, std::memory_order_release);
  return true;
}

bool SharedLane::take() {
  if (taken_ == combined_) return false;
  Collective& collective = collectives_.front();
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_) continue;
    const bool input = collective.rounds->takes_input_of(rank), sum = collective.rounds->takes_sum_of(rank);
    if (input && state(rank).put.load(std::memory_order_acquire) <= taken_) return false;
    if (sum && state(rank).combined.load(std::memory_order_acquire) <= taken_) return false;
  }
  if (!agree(collective)) return false;
  collective.rounds->take(taken_ - collective.begin, slots_of(taken_).data());
  state(rank_).taken.store(++taken_, std::memory_order_release);
  if (taken_ == collective.end) {
    const std::shared_ptr<Completion> completion = std::move(collective.completion);
    collectives_.pop_front();  // frees its tensors, too
    completion->finish("");
  }
  return true;
}

// Whether all ranks have put the first round of the same operation. Throws if a rank has put a round of another
// operation. A rank that fails here has already put its own round, so all the others detect the disagreement, too.
bool SharedLane::agree(Collective& collective) const {
  if (collective.agreed) return true;
  for (int rank = 0; rank < size(); ++rank)
    if (rank != rank_ && state(rank).put.load(std::memory_order_acquire) <= collective.begin) return false;
  // The others keep their slots until this rank has taken them; its own slot may already hold a later round.
  for (int rank = 0; rank < size(); ++rank)
    if (const char* const theirs = state(rank).signature[collective.begin % kSlots];
        rank != rank_ && collective.signature != theirs)
      throw DistributedError(cat("the ranks disagree about this operation: this one asks for ", collective.signature,
                                 ", rank ", members_[rank], " for ", theirs));
  return collective.agreed = true;
}

void SharedLane::check_peers() {
  if (Clock::now() - last_look_ < kPatience) return;
  last_look_ = Clock::now();
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_ || segment_->is_signed_in(rank)) continue;
    // That process may have done everything that this rank needs before it ended.
    if (take() || combine() || put()) return;
    throw DistributedError(cat("the process of rank ", members_[rank], " has ended"));
  }
}

void SharedLane::fail(const std::string& reason) {
  failure_ = reason;
  std::deque<Collective> failed;
  failed.swap(collectives_);
  for (Collective& collective : failed) {
    collective.request = CommRequest{};
    collective.completion->finish(failure_);
  }
}

}  // namespace shardline::mpi
