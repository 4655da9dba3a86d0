#include "models/program/ops/cross_entropy_op.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/tensor.h>

#include "core/error.h"
#include "tests/models/program/ops/compared_ops.h"

#include "tests/catch.h"

namespace shardline::cross_entropy_op_test {
namespace {

using namespace compared_ops;

const at::Tensor kTarget = at::tensor({3, -1, 0, 5, 2}, at::kLong);

at::Tensor logits(at::ScalarType type = at::kDouble) {
  return numbers({5, 6}, 1, type) * 3;
}

Computed ours(const torch::jit::Stack& given, int64_t ignored) {
  return computed([&](auto& stack) { stack = {own_cross_entropy_sum(stack[0].toTensor() * 1, kTarget, ignored)}; },
                  given, {0}, false);
}

}  // namespace

TEST_CASE("cross entropy and its gradients equal those of ATen", "[own_ops]") {
  for (const auto type : {at::kDouble, at::kFloat}) {
    const torch::jit::Stack given = {logits(type)};
    REQUIRE(is_own_cross_entropy(given[0].toTensor(), kTarget, 0));
    const Computed own = ours(given, -1);
    const Computed aten = computed(
        [&](auto& stack) {
          stack = {at::cross_entropy_loss(stack[0].toTensor(), kTarget, {}, at::Reduction::Sum, -1)};
        },
        given, {0}, false);
    const double tolerance = type == at::kDouble ? 1e-14 : 1e-6;
    CHECK(difference(own.result, aten.result) < tolerance);
    CHECK(difference(own.gradients[0], aten.gradients[0]) < tolerance);
  }
}

TEST_CASE("the gradient reuses the memory of logits to which nothing else refers", "[own_ops]") {
  for (const bool are_shared : {false, true}) {
    const at::Tensor leaf = logits().requires_grad_(true);
    const void* gradient = nullptr;
    at::Tensor made = with_backward(logits(), {leaf}, {}, "Made", [&](const at::Tensor& d_made, const SavedTensors&) {
      gradient = d_made.const_data_ptr();
      return std::vector<at::Tensor>{d_made};
    });
    const void* memory = made.const_data_ptr();
    const at::Tensor other = are_shared ? made.detach() : at::Tensor();
    const at::Tensor sum = own_cross_entropy_sum(made, kTarget, -1);
    made = at::Tensor();
    backward_on_this_thread({torch::autograd::impl::gradient_edge(sum)}, {at::ones_like(sum.detach())});
    CHECK((gradient == memory) == !are_shared);
    if (are_shared) CHECK(other.equal(logits()));
  }
}

TEST_CASE("a label that is not a class is an error", "[own_ops]") {
  CHECK_THROWS_MATCHES(own_cross_entropy_sum(logits(), kTarget, 0), RunError,
                       Catch::Matchers::Predicate<RunError>([](const RunError& error) {
                         return std::string(error.what()).find("the label -1 is not one of the 6 classes") !=
                                std::string::npos;
                       }));
  CHECK(!is_own_cross_entropy(logits(), kTarget, 0.1));
  CHECK(!is_own_cross_entropy(logits().t(), kTarget, 0));
  CHECK(!is_own_cross_entropy(logits(), numbers({5, 6}, 2), 0));
}

}  // namespace shardline::cross_entropy_op_test
