// Half-precision products on an accelerator whose contiguous elements do not fill whole packs of 16 bytes.
#include "tests/tensor_parallel/products/odd_products.h"

#include <ATen/ops/zeros.h>

#include <map>
#include <string>

#include "tests/fake_device/fake_device.h"

namespace shardline::odd_products_test {
namespace {

using Launches = std::map<std::string, int64_t>;

constexpr int64_t kRows = 32, kInputs = 24;

template <class Run>
Launches launches_of(const Run& run) {
  fake::take_counts();
  run();
  return fake::take_counts().launches;
}

// A tensor whose rows begin `stride` numbers apart; 0: rows are adjacent.
at::Tensor tensor(int64_t rows, int64_t columns, at::ScalarType type, int64_t stride = 0) {
  return at::zeros({rows, stride == 0 ? columns : stride}, at::TensorOptions(fake::device()).dtype(type))
      .narrow(1, 0, columns);
}

Launches forward(int64_t outputs, at::ScalarType type, int64_t stride) {
  const auto x = tensor(kRows, kInputs, type), w = tensor(outputs, kInputs, type),
             y = tensor(kRows, outputs, type, stride);
  return launches_of([&] { linear_forward_out(y, x, w, {}); });
}

Launches input_gradient(int64_t outputs, at::ScalarType type, int64_t stride) {
  const auto dx = tensor(kRows, kInputs, type), w = tensor(outputs, kInputs, type),
             dy = tensor(kRows, outputs, type, stride);
  return launches_of([&] { linear_input_gradient_out(dx, dy, w, false); });
}

Launches weight_gradient(int64_t outputs, at::ScalarType type, int64_t stride) {
  const auto dw = tensor(outputs, kInputs, at::kFloat), dy = tensor(kRows, outputs, type, stride),
             x = tensor(kRows, kInputs, type);
  return launches_of([&] { add_weight_gradient(dw, dy, x); });
}

}  // namespace

TEST_CASE("products whose number of outputs is not a multiple of 8 are computed in two parts and rounded once") {
  for (const int64_t outputs : {2048, 2049, 2055, 3003})
    testing::check_odd_products(fake::device(), 33, 24, outputs, 3e-6);
  CHECK(fake::take_faults().empty());
}

TEST_CASE("a product is divided if it is large, in half precision, and only its sizes are not multiples of 8") {
  struct Case {
    int64_t outputs, stride;
    bool divided;
  };
  for (const at::ScalarType type : kHalfTypes)
    for (const auto& [outputs, stride, divided] :
         {Case{2056, 2112, false}, Case{2055, 2112, true}, Case{2055, 0, false}, Case{9, 64, false}}) {
      CAPTURE(type, outputs, stride);
      const int64_t products = divided ? 2 : 1;
      CHECK(forward(outputs, type, stride) == Launches{{"aten::mm.out", products}});
      CHECK(weight_gradient(outputs, type, stride) == Launches{{"aten::addmm.dtype_out", products}});
      const auto found = input_gradient(outputs, type, stride);
      if (divided)
        CHECK(found.at("aten::addmm.dtype_out") == 2);
      else
        CHECK(found == Launches{{"aten::mm.out", 1}});
    }
  CHECK(forward(2055, at::kFloat, 2112) == Launches{{"aten::mm.out", 1}});
  CHECK(input_gradient(2055, at::kFloat, 2112) == Launches{{"aten::mm.out", 1}});
  // With TF32, a pack has four elements, and sums are added where they belong.
  set_gpu_products(true);
  CHECK(forward(2052, at::kFloat, 2112) == Launches{{"aten::mm.out", 1}});
  CHECK(forward(2055, at::kFloat, 2112) == Launches{{"aten::mm.out", 2}});
  CHECK(input_gradient(2055, at::kFloat, 2112) == Launches{{"aten::addmm.out", 2}});
  set_gpu_products(false);
}

}  // namespace shardline::odd_products_test
