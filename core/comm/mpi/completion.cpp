#include "core/comm/mpi/completion.h"

#include "core/flight/flight_ring.h"

namespace shardline::mpi {

bool Completion::over() {
  std::lock_guard lock(mutex_);
  return over_;
}

bool Completion::wait_until(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [&] { return over_; });
}

std::string Completion::error() {
  std::lock_guard lock(mutex_);
  return error_;
}

void Completion::finish(const std::string& error) {
  flight_ring().end(ticket_, error.empty() ? FlightState::done : FlightState::failed);
  std::lock_guard lock(mutex_);
  over_ = true;
  error_ = error;
  changed_.notify_all();
}

}  // namespace shardline::mpi
