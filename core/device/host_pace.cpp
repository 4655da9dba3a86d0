#include "core/device/host_pace.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "core/device/accelerator.h"

namespace shardline {

void HostPace::mark(const char* reason) {
  if (!is_accelerator(device_)) return;
  marks_.emplace_back(device_.type()).record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  if (marks_.size() <= ahead_) return;
  const HostWait wait(reason);
  marks_.front().synchronize();
  marks_.pop_front();
}

}  // namespace shardline
