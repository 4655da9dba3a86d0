#include "core/device/stream_wait.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <deque>

namespace shardline {
namespace {

thread_local std::deque<std::shared_ptr<StreamWait::Times>> unmeasured;  // in stream order
thread_local double waited = 0;

// Torch measures the time between two events only after query() has returned true for both.
bool is_over(const StreamWait::Times& times) {
  const bool has_begun = times.begin.query();
  return times.end.query() && has_begun;
}

void measure_ended() {
  for (; !unmeasured.empty() && is_over(*unmeasured.front()); unmeasured.pop_front())
    waited += unmeasured.front()->begin.elapsedTime(unmeasured.front()->end) / 1000;
}

}  // namespace

StreamWait::StreamWait(at::Device device)
    : stream_(c10::impl::VirtualGuardImpl(device.type()).getStream(device)),
      times_(std::make_shared<Times>(Times{c10::Event(device.type(), c10::EventFlag::BACKEND_DEFAULT),
                                           c10::Event(device.type(), c10::EventFlag::BACKEND_DEFAULT)})) {
  times_->begin.record(stream_);
}

void StreamWait::end_with(const c10::Event& event) {
  event.block(stream_);
  times_->end.record(stream_);
  measure_ended();  // evaluation never reads the times of waits, so their events would accumulate
  unmeasured.push_back(times_);
}

double stream_waited_seconds() {
  measure_ended();
  return waited;
}

}  // namespace shardline
