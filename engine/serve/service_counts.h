// Counts of what a service has done so far, in Prometheus' text format.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace shardline {

class ServiceCounts {
 public:
  void answered(int status, double seconds);
  // Counts a request that was answered before it had arrived; this says nothing about how long requests take.
  void refused(int status);
  void computed(int64_t items, int64_t tokens);
  // Seconds that recent requests took.
  double recent_seconds() const;

  struct Now {
    int64_t working = 0, queued = 0;  // requests
    int64_t waiting = 0;              // examples or prompts for the model
    int connections = 0;
  };
  std::string text(const Now& now) const;

 private:
  static constexpr std::array kBounds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0};

  mutable std::mutex mutex_;  // guards everything below
  std::map<int, int64_t> by_status_;
  std::array<int64_t, kBounds.size()> within_ = {};  // by bound: requests that took no longer
  int64_t timed_ = 0, passes_ = 0, items_ = 0, tokens_ = 0;
  double seconds_ = 0, recent_ = 0.1;
};

}  // namespace shardline
