// The ops that a thread runs, as ATen and our own kernels announce them (core/model/announced_op.h), with the shapes of
// their tensors.
#pragma once
#include <ATen/record_function.h>

#include <string>
#include <vector>

namespace shardline {

// Records what this thread runs from construction to destruction. Ops that run within another op are not recorded, only
// the outer op is. There can be one recorder at a time in a thread.
class OpRecorder {
 public:
  struct Event {
    double seconds;  // by steady_seconds()
    std::string name;
    std::vector<std::vector<int64_t>> shapes;  // one for each argument; [] for those that are not tensors
    bool operator==(const Event&) const = default;
  };

  OpRecorder();
  ~OpRecorder();
  OpRecorder(const OpRecorder&) = delete;
  OpRecorder& operator=(const OpRecorder&) = delete;

  const std::vector<Event>& events() const { return events_; }

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& op);
  static void end(const at::RecordFunction&, at::ObserverContext*);

  std::vector<Event> events_;
  int depth_ = 0;
  at::CallbackHandle handle_;
};

// FLOPs of matrix products and attention (causal: half of the scores), from their shapes; 0 for all other ops.
double flops_of(const OpRecorder::Event& event);

}  // namespace shardline
