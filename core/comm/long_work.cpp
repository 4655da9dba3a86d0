#include "core/comm/long_work.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/comm/clock.h"
#include "core/comm/timeouts.h"

namespace shardline {
namespace {

double limit_in_seconds() {
  return std::chrono::duration<double>(timeouts().collective.time).count();
}

// The time for which waiting ranks stay in one round until working ranks join: a small part of the limit, never long.
double seconds_between_rounds() {
  return std::min(0.5, limit_in_seconds() / 8);
}

}  // namespace

LongWork::LongWork(Communicator& group, std::string what, Show show)
    : group_(group), what_(std::move(what)), show_(std::move(show)), next_round_(steady_seconds()) {}

void LongWork::start_round() {
  sums_ = at::empty({3}, at::kLong);
  int64_t* const values = sums_.mutable_data_ptr<int64_t>();
  values[0] = mine_.done, values[1] = mine_.total, values[2] = mine_.finished;
  next_round_ = steady_seconds() + seconds_between_rounds();
  round_ = group_.all_reduce(sums_, {.what = what_.c_str()});
  round_start_ = steady_seconds();
}

LongWork::State LongWork::end_round() {
  round_->wait();
  round_ = nullptr;
  const int64_t* const values = sums_.const_data_ptr<int64_t>();
  if (show_) show_(values[0], values[1]);
  return {values[0], values[1], values[2]};
}

void LongWork::report(int64_t done, int64_t total) {
  const std::lock_guard lock(mutex_);
  mine_.done = done;
  mine_.total = total;
  take_part();
}

void LongWork::take_part() {
  if (round_ && !round_->poll()) return;
  if (round_) end_round();
  if (steady_seconds() >= next_round_) start_round();
}

void LongWork::await(Work& work) {
  while (!work.poll()) {
    {
      const std::lock_guard lock(mutex_);
      take_part();
      if (round_ && steady_seconds() > round_start_ + limit_in_seconds()) end_round();  // throws at the second limit
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  work.wait();
}

void LongWork::finish() {
  const std::lock_guard lock(mutex_);
  if (round_) end_round();
  mine_.finished = 1;
  do start_round();
  while (end_round().finished < group_.size());
}

}  // namespace shardline
