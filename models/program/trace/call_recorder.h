// The operators that a function calls, with their arguments and results.
#pragma once
#include <ATen/core/ivalue.h>
#include <ATen/core/operator_name.h>

#include <functional>
#include <vector>

namespace shardline {

struct RecordedCall {
  c10::OperatorName op;
  std::vector<c10::IValue> arguments, results;
  bool has_grad = true;  // whether gradients were enabled when it was called
};

// Runs the function in this thread. Operators called by other operators are not recorded, only the outermost. The
// tensors of all calls live as long as the records.
std::vector<RecordedCall> record_calls(const std::function<void()>& run);

}  // namespace shardline
