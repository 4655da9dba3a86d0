// A wait of an accelerator's stream for an operation between ranks: the host goes on, and events of the stream measure
// for how long it had nothing to do.
#pragma once
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>

namespace shardline {

class StreamWait {
 public:
  // Begins when the device's current stream of this thread has done what it was given so far.
  explicit StreamWait(at::Device device);

  // What is queued on that stream from now on runs after `event`. Called once, by the thread that made this.
  void end_with(const c10::Event& event);

  bool has_begun() const { return times_->begin.query(); }  // on any thread

  struct Times {
    c10::Event begin, end;
  };

 private:
  c10::Stream stream_;
  std::shared_ptr<Times> times_;
};

// Seconds of those waits of this thread that are over.
double stream_waited_seconds();

}  // namespace shardline
