// The Python functions that programs use to compute sizes.
#pragma once
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace shardline {

// "_operator.mul", "torch.sym_max", "math.trunc", ...
bool is_number_function(const std::string& name);

// The result for ints, doubles and bools, as in Python. Throws a RunError for a division by zero, an overflow, and
// arguments of other types or number.
c10::IValue number_function(const std::string& name, const std::vector<c10::IValue>& arguments);

}  // namespace shardline
