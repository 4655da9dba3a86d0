// Our ops compared with ATen's on the same tensors.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/model/backward.h"
#include "models/program/ops/own_operators.h"

#include "tests/catch.h"

namespace shardline::compared_ops {

// Numbers between -1 and 1 without a pattern.
inline at::Tensor numbers(at::IntArrayRef sizes, double seed, at::ScalarType type = at::kDouble) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return (at::arange(count, at::kDouble) * 12.9898 + seed).sin().view(sizes).to(type);
}

inline bool run_own(const std::string& name, torch::jit::Stack& stack) {
  const OwnOperator own = own_operator(name, "");
  REQUIRE(own != nullptr);
  return own(stack);
}

inline void run_aten(const std::string& name, torch::jit::Stack& stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "").callBoxed(stack);
}

// The result, and the gradients of its product with fixed numbers by the chosen arguments.
struct Computed {
  at::Tensor result;
  std::vector<at::Tensor> gradients;
};

// Runs the operator on copies of the arguments, and computes gradients for those at `trained`. has_sums: they are added
// to existing gradients, which are 1.
template <class Run>
Computed computed(const Run& run, torch::jit::Stack arguments, const std::vector<size_t>& trained, bool has_sums) {
  std::vector<at::Tensor> leaves;
  for (const size_t place : trained) {
    const at::Tensor& given = arguments[place].toTensor();
    const at::Tensor leaf = given.detach().clone().requires_grad_(true);
    if (has_sums) leaf.mutable_grad() = at::ones_like(given.detach());
    leaves.push_back(leaf);
    arguments[place] = leaf;
  }
  run(arguments);
  Computed made{arguments[0].toTensor(), {}};
  if (trained.empty()) return made;
  const at::Tensor d_result = numbers(made.result.sizes(), 5, made.result.scalar_type());
  backward_on_this_thread({torch::autograd::impl::gradient_edge(made.result)}, {d_result});
  for (const auto& leaf : leaves) made.gradients.push_back(leaf.grad());
  return made;
}

inline double difference(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  REQUIRE(a.scalar_type() == b.scalar_type());
  return (a - b).abs().max().item<double>() / std::max(1.0, b.abs().max().item<double>());
}

// Checks that our op replaces ATen's for these arguments and computes the same.
inline void check_same(const std::string& name, const torch::jit::Stack& arguments, const std::vector<size_t>& trained,
                       double tolerance = 1e-13) {
  CAPTURE(name);
  for (const bool has_sums : {false, true}) {
    const Computed own = computed([&](auto& stack) { REQUIRE(run_own(name, stack)); }, arguments, trained, has_sums);
    const Computed aten = computed([&](auto& stack) { run_aten(name, stack); }, arguments, trained, has_sums);
    CHECK(difference(own.result, aten.result) < tolerance);
    CHECK(own.result.requires_grad() == !trained.empty());
    for (size_t i = 0; i < trained.size(); ++i) {
      CAPTURE(i);
      CHECK(difference(own.gradients[i], aten.gradients[i]) < tolerance);
    }
  }
}

// Checks that our op leaves these arguments to ATen and does not change the stack's size.
inline void check_left(const std::string& name, const torch::jit::Stack& arguments) {
  torch::jit::Stack stack = arguments;
  CHECK(!run_own(name, stack));
  CHECK(stack.size() == arguments.size());
}

}  // namespace shardline::compared_ops
