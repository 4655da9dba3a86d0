// Operators of programs that our ops compute.
#pragma once
#include <ATen/core/stack.h>

#include <string>

namespace shardline {

// Replaces the arguments on the stack by the result and returns true, or returns false and changes nothing: then ATen's
// operator must be called, because our op does not compute the same function of these arguments.
using OwnOperator = bool (*)(torch::jit::Stack& stack);

// Null if ATen always computes this operator. Attention is not among them (attention_op.h).
OwnOperator own_operator(const std::string& name, const std::string& overload);

}  // namespace shardline
