// Makes an accelerator's stream wait for an operation between ranks while the host continues. Events on the stream
// measure the idle time.
#pragma once
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>

namespace shardline {

class StreamWait {
 public:
  // The wait begins when this thread's current stream of the device has finished the work queued so far.
  explicit StreamWait(at::Device device);

  // Work queued on that stream from now on runs after `event`. Called once, by the thread that created this object.
  void end_with(const c10::Event& event);

  bool has_begun() const { return times_->begin.query(); }  // may be called from any thread

  struct Times {
    c10::Event begin, end;
  };

 private:
  c10::Stream stream_;
  std::shared_ptr<Times> times_;
};

// The total time of this thread's waits that have ended, in seconds.
double stream_waited_seconds();

}  // namespace shardline
