#include "models/program/split/elementwise_calls.h"

#include <set>

namespace shardline {

bool is_elementwise(const std::string& call) {
  static const std::set<std::string> calls = {"aten::_to_copy",    "aten::abs",
                                              "aten::add",         "aten::addcdiv",
                                              "aten::addcmul",     "aten::alias",
                                              "aten::clamp",       "aten::clamp_max",
                                              "aten::clamp_min",   "aten::clone",
                                              "aten::contiguous",  "aten::cos",
                                              "aten::detach",      "aten::div",
                                              "aten::dropout",     "aten::elu",
                                              "aten::erf",         "aten::exp",
                                              "aten::expm1",       "aten::gelu",
                                              "aten::hardsigmoid", "aten::hardswish",
                                              "aten::hardtanh",    "aten::leaky_relu",
                                              "aten::lerp",        "aten::lift_fresh_copy",
                                              "aten::log",         "aten::log1p",
                                              "aten::logical_not", "aten::logical_or",
                                              "aten::masked_fill", "aten::maximum",
                                              "aten::minimum",     "aten::mish",
                                              "aten::mul",         "aten::neg",
                                              "aten::ones_like",   "aten::pow",
                                              "aten::reciprocal",  "aten::relu",
                                              "aten::relu6",       "aten::rsqrt",
                                              "aten::rsub",        "aten::selu",
                                              "aten::sigmoid",     "aten::sign",
                                              "aten::silu",        "aten::sin",
                                              "aten::softplus",    "aten::sqrt",
                                              "aten::square",      "aten::sub",
                                              "aten::tanh",        "aten::to",
                                              "aten::where",       "aten::zeros_like"};
  return calls.contains(call);
}

}  // namespace shardline
