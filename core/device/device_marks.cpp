#include "core/device/device_marks.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "core/device/accelerator.h"

namespace shardline {
namespace {

c10::Event timed_event(c10::Device device) {
  c10::Event event(device.type(), c10::EventFlag::BACKEND_DEFAULT);  // the default flag enables timing
  event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return event;
}

}  // namespace

// Repeated after every use, because the clocks drift apart.
void DeviceMarks::align() {
  zero_ = timed_event(device_);
  const HostWait wait("the device's clock");
  zero_->synchronize();
  zero_seconds_ = clock_();
}

void DeviceMarks::add() {
  if (!is_accelerator(device_)) return times_.push_back(clock_());
  if (!zero_) align();
  events_.push_back(timed_event(device_));
}

void DeviceMarks::clear() {
  times_.clear();
  events_.clear();
}

std::vector<double> DeviceMarks::take() {
  if (!is_accelerator(device_)) return std::exchange(times_, {});
  std::vector<double> times;
  if (events_.empty()) return times;
  const c10::Event before = std::move(*zero_);
  const double before_seconds = zero_seconds_;
  align();
  constexpr double kMillisecond = 1e-3;
  for (const auto& event : events_) times.push_back(before_seconds + kMillisecond * before.elapsedTime(event));
  events_.clear();
  return times;
}

}  // namespace shardline
