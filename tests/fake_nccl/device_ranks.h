// Ranks with devices of their own, connected by the fake NCCL.
#pragma once
#include <c10/core/DeviceGuard.h>

#include <chrono>
#include <functional>

#include "core/comm/nccl/nccl_communicator.h"
#include "core/comm/threads_communicator.h"
#include "core/comm/timeouts.h"
#include "tests/fake_device/fake_device.h"
#include "tests/fake_nccl/fake_nccl.h"

namespace shardline::testing {

// Calls `fn` on each rank, with device r as the current device of rank r.
inline void run_on_devices(int ranks, const std::function<void(CommunicatorPtr control)>& fn) {
  run_ranks(ranks, [&](CommunicatorPtr control) {
    const c10::DeviceGuard on_device(fake::device(control->rank()));
    fn(control);
  });
}

inline void run_over_nccl(int ranks, const std::function<void(CommunicatorPtr world, CommunicatorPtr control)>& fn) {
  run_on_devices(
      ranks, [&](CommunicatorPtr control) { fn(make_nccl_world(control, control->rank(), fake::nccl()), control); });
}

struct Limits {
  explicit Limits(std::chrono::milliseconds wait, std::chrono::milliseconds start_up = std::chrono::seconds(60)) {
    set_timeouts({start_up, wait, wait});
  }
  ~Limits() { set_timeouts(before); }
  Limits(const Limits&) = delete;
  Limits& operator=(const Limits&) = delete;

  Timeouts before = timeouts();
};

}  // namespace shardline::testing
