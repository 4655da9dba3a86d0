#include "models/program/trace/call_recorder.h"

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <memory>

#include "core/error.h"

namespace shardline {
namespace {

struct Recording {
  std::vector<RecordedCall> calls;
  int depth = 0;
};

thread_local Recording* recording = nullptr;  // because callbacks are plain functions

// Announcements that are not operators, such as a user's own record_function, only group operators.
bool is_operator(const at::RecordFunction& op) {
  return op.operator_name().has_value();
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& op) {
  if (!recording || !is_operator(op) || recording->depth++ > 0) return nullptr;
  const auto inputs = op.inputs();
  recording->calls.push_back({.op = *op.operator_name(),
                              .arguments = std::vector<c10::IValue>(inputs.begin(), inputs.end()),
                              .results = {},
                              .has_grad = at::GradMode::is_enabled()});
  return nullptr;
}

void end(const at::RecordFunction& op, at::ObserverContext*) {
  if (!recording || !is_operator(op) || --recording->depth > 0) return;
  recording->calls.back().results = op.outputs();
}

// Removes the callback even if the function throws.
class Recorder {
 public:
  explicit Recorder(Recording& into) {
    SL_ASSERT(!recording, "calls are already being recorded in this thread");
    recording = &into;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(begin, end)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  ~Recorder() {
    at::removeCallback(handle_);
    recording = nullptr;
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

 private:
  at::CallbackHandle handle_;
};

}  // namespace

std::vector<RecordedCall> record_calls(const std::function<void()>& run) {
  Recording made;
  const Recorder recorder(made);
  run();
  return std::move(made.calls);
}

}  // namespace shardline
