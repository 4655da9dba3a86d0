#include "core/comm/hierarchical_gather.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "core/comm/forwarding_communicator.h"
#include "core/device/accelerator.h"
#include "core/error.h"

namespace shardline {
namespace {

constexpr std::chrono::microseconds kBetweenLooks{50};

// One all-gather in progress.
struct TwoSteps {
  std::vector<WorkPtr> first;
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors;  // output and input of each operation of the second step
  std::string what;
  TimeLimit timeout{std::chrono::milliseconds(0)};
  // Filled in when the second step begins.
  bool begun = false;
  std::vector<WorkPtr> second;
  std::exception_ptr failure;  // set if the second step could not begin
};
using TwoStepsPtr = std::shared_ptr<TwoSteps>;

// Starts second steps. All ranks must do so in the same order, even if their first steps end in different orders.
class SecondSteps {
 public:
  explicit SecondSteps(CommunicatorPtr inside) : inside_(std::move(inside)) {
    thread_ = std::thread([this, rank = current_rank()] {
      set_current_rank(rank);
      look();
    });
  }

  ~SecondSteps() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
    if (std::uncaught_exceptions() > 0) return;
    // The other ranks of this host still depend on this rank.
    while (const TwoStepsPtr next = oldest()) try_to_begin(*next);
  }

  void add(TwoStepsPtr gather) {
    {
      std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(gather));
    }
    wake_.notify_all();
  }

  // Starts all second steps that are ready.
  void advance() {
    std::lock_guard lock(mutex_);
    const auto is_over = [](const WorkPtr& work) { return work->poll(); };
    while (!waiting_.empty() && std::all_of(waiting_.front()->first.begin(), waiting_.front()->first.end(), is_over))
      begin_oldest();
  }

  bool has_begun(const TwoSteps& gather) {
    std::lock_guard lock(mutex_);
    return gather.begun;
  }

  // Waits for the first steps of this all-gather and of those before it.
  void bring_to_begin(const TwoSteps& gather) {
    while (!has_begun(gather)) {
      const TwoStepsPtr next = oldest();
      if (!next) continue;  // it has begun in the meantime
      for (const auto& work : next->first) work->wait();
      advance();
    }
  }

 private:
  TwoStepsPtr oldest() {
    std::lock_guard lock(mutex_);
    return waiting_.empty() ? nullptr : waiting_.front();
  }

  void try_to_begin(const TwoSteps& gather) {
    try {
      bring_to_begin(gather);
    } catch (const Error&) {  // no rank is waiting here; ranks that do wait get the error
      std::lock_guard lock(mutex_);
      waiting_.clear();
    }
  }

  // Requires the lock. The first steps are complete, so wait() returns or throws immediately.
  void begin_oldest() {
    TwoSteps& gather = *waiting_.front();
    try {
      for (const auto& work : gather.first) work->wait();
      for (const auto& [output, input] : gather.tensors)
        gather.second.push_back(
            inside_->all_gather(output, input, {.what = gather.what.c_str(), .timeout = gather.timeout}));
    } catch (...) {
      gather.failure = std::current_exception();
    }
    gather.begun = true;
    waiting_.pop_front();
  }

  // The thread's loop. MPI transfers messages by itself, but something must start the second steps.
  void look() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      wake_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      lock.unlock();
      advance();
      lock.lock();
      wake_.wait_for(lock, kBetweenLooks, [&] { return stopping_; });
    }
  }

  CommunicatorPtr inside_;
  std::mutex mutex_;  // guards waiting_ and its entries, stopping_ and inside_
  std::deque<TwoStepsPtr> waiting_;
  bool stopping_ = false;
  std::condition_variable wake_;
  std::thread thread_;
};

class TwoStepWork : public Work {
 public:
  TwoStepWork(std::shared_ptr<SecondSteps> steps, TwoStepsPtr gather)
      : steps_(std::move(steps)), gather_(std::move(gather)) {}

  bool poll() override {
    steps_->advance();
    if (!steps_->has_begun(*gather_)) return false;
    return std::all_of(gather_->second.begin(), gather_->second.end(),
                       [](const WorkPtr& work) { return work->poll(); });
  }

 protected:
  void await(TimePoint) override {
    steps_->bring_to_begin(*gather_);
    if (gather_->failure) std::rethrow_exception(gather_->failure);
    for (const auto& work : gather_->second) work->wait();
  }

 private:
  std::shared_ptr<SecondSteps> steps_;
  TwoStepsPtr gather_;
};

class HierarchicalCommunicator : public ForwardingCommunicator {
 public:
  HierarchicalCommunicator(const CommunicatorPtr& group, const HostGrid& grid)
      : ForwardingCommunicator(group),
        grid_(grid),
        host_(grid.host(group->rank())),
        place_(grid.place(group->rank())),
        between_(group->split(place_, group->name() + " between hosts")),
        steps_(std::make_shared<SecondSteps>(group->split(host_, group->name() + " of a host"))) {}

  WorkPtr all_gather(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) override;

 private:
  HostGrid grid_;
  int host_, place_;
  CommunicatorPtr between_;  // ranks with the same place, one for each host
  std::shared_ptr<SecondSteps> steps_;
};

// Parts are received directly into their places in the output, so no other memory is needed, and the second step
// gathers in place.
WorkPtr HierarchicalCommunicator::all_gather(const at::Tensor& output, const at::Tensor& input,
                                             const CommOptions& options) {
  if (output.numel() == 0) return inner().all_gather(output, input, options);
  SL_ASSERT(!is_accelerator(output) && output.is_contiguous() && input.is_contiguous() &&
                output.scalar_type() == input.scalar_type() && output.numel() == size() * input.numel(),
            "all_gather in group ", name(), ": output ", output.sizes(), ", input ", input.sizes(), " of one of ",
            size(), " ranks");
  const at::Tensor whole = output.detach().view({-1});
  const int64_t length = input.numel();
  const auto parts = [&](int first_rank, int count) { return whole.narrow(0, first_rank * length, count * length); };

  const auto gather = std::make_shared<TwoSteps>();
  gather->what = options.what;
  gather->timeout = options.timeout;
  for (int host = 0; host < grid_.hosts; ++host)
    if (host != host_) gather->first.push_back(between_->recv(parts(grid_.rank(host, place_), 1), host, options));
  for (int host = 0; host < grid_.hosts; ++host)
    if (host != host_) gather->first.push_back(between_->send(input, host, options));
  const at::Tensor own = parts(rank(), 1);
  if (own.const_data_ptr() != input.const_data_ptr()) own.copy_(input.detach().view({-1}));

  // Parts with the same place are contiguous if hosts alternate; otherwise the parts of one host are.
  if (grid_.in_turns)
    gather->tensors.emplace_back(whole, parts(grid_.rank(0, place_), grid_.hosts));
  else
    for (int host = 0; host < grid_.hosts; ++host)
      gather->tensors.emplace_back(parts(grid_.rank(host, 0), grid_.per_host), parts(grid_.rank(host, place_), 1));
  steps_->add(gather);
  return std::make_shared<TwoStepWork>(steps_, gather);
}

}  // namespace

std::optional<HostGrid> host_grid(const std::vector<int>& host_of) {
  const int ranks = host_of.size();
  HostGrid grid;
  grid.hosts = std::set<int>(host_of.begin(), host_of.end()).size();
  SL_ASSERT(ranks > 0, "a group without ranks");
  if (ranks % grid.hosts != 0) return std::nullopt;
  grid.per_host = ranks / grid.hosts;
  for (const bool in_turns : {false, true}) {
    grid.in_turns = in_turns;
    // There are as many sets as hosts, so if each set is on one host, no two sets share a host.
    bool fits = true;
    for (int rank = 0; rank < ranks; ++rank) fits &= host_of[rank] == host_of[grid.rank(grid.host(rank), 0)];
    if (fits) return grid;
  }
  return std::nullopt;
}

CommunicatorPtr with_hierarchical_gather(const CommunicatorPtr& group, int host) {
  const at::Tensor mine = at::empty({1}, at::kLong), all = at::empty({group->size()}, at::kLong);
  mine.mutable_data_ptr<int64_t>()[0] = host;
  group->all_gather(all, mine, {.what = "hosts"})->wait();
  const int64_t* const hosts = all.const_data_ptr<int64_t>();
  const auto grid = host_grid({hosts, hosts + group->size()});
  if (!grid || !grid->needs_two_steps()) return group;
  return std::make_shared<HierarchicalCommunicator>(group, *grid);
}

}  // namespace shardline
