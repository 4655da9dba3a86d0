#include "engine/op_recorder.h"

#include "core/clock.h"
#include "core/error.h"

namespace shardline {
namespace {

thread_local OpRecorder* recorder = nullptr;  // callbacks are plain functions

}  // namespace

OpRecorder::OpRecorder() {
  SL_ASSERT(!recorder, "two OpRecorders in one thread");
  recorder = this;
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(begin, end)
          .needsInputs(true)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE}));
}

OpRecorder::~OpRecorder() {
  at::removeCallback(handle_);
  recorder = nullptr;
}

std::unique_ptr<at::ObserverContext> OpRecorder::begin(const at::RecordFunction& op) {
  if (!recorder || recorder->depth_++ > 0) return nullptr;
  Event event{.at = steady_seconds(), .name = op.name(), .shapes = {}};
  for (const auto& input : op.inputs()) {
    const bool shaped = input.isTensor() && input.toTensor().defined();
    event.shapes.push_back(shaped ? input.toTensor().sizes().vec() : std::vector<int64_t>());
  }
  recorder->events_.push_back(std::move(event));
  return nullptr;
}

void OpRecorder::end(const at::RecordFunction&, at::ObserverContext*) {
  if (recorder) --recorder->depth_;
}

}  // namespace shardline
