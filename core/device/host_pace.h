// Keeps the host from running far ahead of its accelerator. The host frees some memory, such as that of messages, only
// when it sees that work has finished; otherwise all the work it has queued would hold such memory.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <cstddef>
#include <deque>

namespace shardline {

class HostPace {
 public:
  HostPace(c10::Device device, size_t ahead) : device_(device), ahead_(ahead) {}

  // Marks the end of the work queued so far on the current stream, then waits until the device has reached all marks
  // but the last `ahead`. Does nothing on CPUs. `reason`: see HostWait.
  void mark(const char* reason);

 private:
  c10::Device device_;
  size_t ahead_;
  std::deque<c10::Event> marks_;
};

}  // namespace shardline
