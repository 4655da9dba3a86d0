// The Python functions that programs use to compute sizes.
#pragma once
#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <vector>

namespace shardline {

// "_operator.mul", "torch.sym_max", "math.trunc", ...
bool is_number_function(const std::string& name);

// Computes the result for ints, doubles and bools, as in Python. Throws a RunError for a division by zero, an overflow,
// and arguments of other types or number.
using NumberFunction = std::function<c10::IValue(const std::vector<c10::IValue>& arguments)>;
NumberFunction number_function(const std::string& name);

}  // namespace shardline
