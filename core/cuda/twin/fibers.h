// Functions that take turns on one thread, each on its own stack. They switch only where they wait.
#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

namespace shardline::twin {

// Thrown if all fibers wait, or if some wait for fibers that have returned.
struct Deadlock : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Fibers {
 public:
  Fibers();
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  // Runs body(0) to body(count - 1), in ascending or descending order, until all have returned. The first exception of
  // a body ends the run and is rethrown; the other fibers are abandoned where they wait.
  void run(int count, bool last_first, const std::function<void(int)>& body);

  // Called inside a body: lets the other fibers run until the value of `counter` has changed.
  void wait_for_change(const uint64_t& counter);
  int current() const { return current_; }
  int returned() const { return returned_; }

 private:
  struct Fiber;
  static void enter();
  [[noreturn]] void serve(Fiber& fiber);
  bool resume(int index);

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::unique_ptr<Fiber> scheduler_;
  const std::function<void(int)>* body_ = nullptr;
  std::exception_ptr failure_;
  int current_ = -1, returned_ = 0;
};

}  // namespace shardline::twin
