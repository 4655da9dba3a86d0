// Half-precision products on an accelerator whose rows or sums fill no whole packs of 16 bytes.
#include "tests/tensor_parallel/products/odd_products.h"

#include <ATen/ops/zeros.h>

#include <map>
#include <string>

#include "tests/fake_device/fake_device.h"

namespace shardline::odd_products_test {
namespace {

using Launches = std::map<std::string, int64_t>;

template <class Run>
Launches launches_of(const Run& run) {
  fake::take_counts();
  run();
  return fake::take_counts().launches;
}

}  // namespace

TEST_CASE("products whose outputs fill no whole packs are made in two parts and rounded once") {
  for (const int64_t outputs : {256, 257, 263, 1003})
    testing::check_odd_products(fake::device(), 33, 24, outputs, 3e-6);
  CHECK(fake::take_faults().empty());
}

TEST_CASE("a product is only divided if it is large, in half precision, and does not fill packs") {
  const auto empty = [](int64_t rows, int64_t columns, at::ScalarType type) {
    return at::zeros({rows, columns}, at::TensorOptions(fake::device()).dtype(type));
  };
  const auto forward = [&](int64_t outputs, at::ScalarType type) {
    const auto x = empty(32, 24, type), w = empty(outputs, 24, type), y = empty(32, outputs, type);
    return launches_of([&] { linear_forward_out(y, x, w, {}); });
  };
  const auto backward = [&](int64_t outputs, at::ScalarType type) {
    const auto dx = empty(32, 24, type), w = empty(outputs, 24, type), dy = empty(32, outputs, type);
    return launches_of([&] { linear_input_gradient_out(dx, dy, w, false); });
  };
  const auto weight = [&](int64_t outputs, at::ScalarType type) {
    const auto dw = empty(outputs, 24, at::kFloat), dy = empty(32, outputs, type), x = empty(32, 24, type);
    return launches_of([&] { add_weight_gradient(dw, dy, x); });
  };
  for (const at::ScalarType type : kHalfTypes) {
    CAPTURE(type);
    CHECK(weight(264, type) == Launches{{"aten::addmm.dtype_out", 1}});
    CHECK(weight(263, type) == Launches{{"aten::addmm.dtype_out", 2}});
    CHECK(forward(264, type) == Launches{{"aten::mm.out", 1}});
    CHECK(forward(263, type) == Launches{{"aten::mm.out", 2}});
    CHECK(forward(9, type) == Launches{{"aten::mm.out", 1}});
    CHECK(backward(264, type) == Launches{{"aten::mm.out", 1}});
    CHECK(backward(263, type).at("aten::addmm.dtype_out") == 2);
    CHECK(backward(9, type) == Launches{{"aten::mm.out", 1}});
  }
  CHECK(forward(263, at::kFloat) == Launches{{"aten::mm.out", 1}});
  CHECK(backward(263, at::kFloat) == Launches{{"aten::mm.out", 1}});
  // With TF32, a pack has four elements, and sums are added where they belong.
  set_gpu_products(true);
  CHECK(forward(260, at::kFloat) == Launches{{"aten::mm.out", 1}});
  CHECK(forward(263, at::kFloat) == Launches{{"aten::mm.out", 2}});
  CHECK(backward(263, at::kFloat) == Launches{{"aten::addmm.out", 2}});
  set_gpu_products(false);
}

}  // namespace shardline::odd_products_test
