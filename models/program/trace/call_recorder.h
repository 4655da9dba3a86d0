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
  bool has_grad = true;  // of the mode in which it was called
};

// Runs the function in this thread. Operators that run within another operator are not recorded, only the outer one is.
// The tensors of all calls stay alive as long as the calls.
std::vector<RecordedCall> record_calls(const std::function<void()>& run);

}  // namespace shardline
