// Time marks in a device's queue of work. Neither host nor device waits for a mark; its time becomes known later.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <optional>
#include <vector>

namespace shardline {

class DeviceMarks {
 public:
  using Clock = double (*)();  // the host's time in seconds

  // On CPUs, the time of a mark is the time of the call.
  DeviceMarks(c10::Device device, Clock clock) : device_(device), clock_(clock) {}

  void add();    // marks the end of the work queued so far on the current stream
  void clear();  // forgets the marks
  // Returns the times of all marks on this clock, in the order in which they were added, and forgets the marks. Waits
  // until the device has finished the work queued on the current stream.
  std::vector<double> take();

 private:
  void align();

  c10::Device device_;
  Clock clock_;
  std::vector<double> times_;       // on CPUs
  std::vector<c10::Event> events_;  // on accelerators
  // An event before all marks, whose time is known by both clocks.
  std::optional<c10::Event> zero_;
  double zero_seconds_ = 0;
};

}  // namespace shardline
