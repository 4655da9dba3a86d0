// The completion of an operation: the engine's thread signals it, and another thread waits for it.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

namespace shardline::mpi {

class Completion {
 public:
  // ticket: the operation's record in the flight ring.
  explicit Completion(uint64_t ticket) : ticket_(ticket) {}

  bool over();
  // Returns false if the deadline passes first. Otherwise, error() returns how the operation ended: "" on success.
  bool wait_until(std::chrono::steady_clock::time_point deadline);
  std::string error();

  // Called once, when the tensors are no longer in use.
  void finish(const std::string& error);

 private:
  uint64_t ticket_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::string error_;
};

}  // namespace shardline::mpi
