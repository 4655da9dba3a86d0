// Moments in a device's work, whose times become known later, without making the host or the device wait.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <optional>
#include <vector>

namespace shardline {

class DeviceMarks {
 public:
  using Clock = double (*)();  // seconds of the host

  // On CPUs a mark's time is that of the call.
  DeviceMarks(c10::Device device, Clock clock) : device_(device), clock_(clock) {}

  void add();    // when the work queued so far on the current stream is done
  void clear();  // forgets the marks
  // The times of all marks, by the clock, in the order in which they were added; forgets them. Waits until the device
  // has done what was queued on the current stream.
  std::vector<double> take();

 private:
  void align();

  c10::Device device_;
  Clock clock_;
  std::vector<double> times_;       // CPUs
  std::vector<c10::Event> events_;  // accelerators
  // A moment that both clocks know, from before the marks.
  std::optional<c10::Event> zero_;
  double zero_seconds_ = 0;
};

}  // namespace shardline
