// Products of half-precision tensors: sums in fp32, one rounding, gradients of parameters in fp32.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <string>
#include <vector>

#include "tensor_parallel/products/products.h"
#include "tensor_parallel/products/widened_products.h"
#include "tests/tensor_parallel/half.h"

#include "tests/catch.h"

namespace shardline::half_products_test {
namespace {

struct Restore {
  ~Restore() { use_products(ProductLibrary::automatic); }
};

// A [rows, columns] window of a larger tensor, so that rows are strided; the rest of that tensor must not be read.
at::Tensor window(int64_t rows, int64_t columns, at::ScalarType type, double scale = 1) {
  at::Tensor whole = at::full({rows + 2, columns + 5}, NAN, type);
  at::Tensor inner = whole.narrow(0, 1, rows).narrow(1, 3, columns);
  inner.copy_(normal({rows, columns}, type, scale));
  return inner;
}

void check_weight_gradient(const at::Tensor& dy, const at::Tensor& x) {
  const at::Tensor dw = at::randn({dy.size(1), x.size(1)}), db = at::randn({dy.size(1)});
  const at::Tensor dw_before = wide(dw), db_before = wide(db);
  for (int use = 1; use <= 2; ++use) {
    add_weight_gradient(dw, dy, x);
    add_bias_gradient(db, dy);
    CHECK(roundings(dw, dw_before + use * at::matmul(wide(dy).t(), wide(x))) <= 1);
    CHECK(roundings(db, db_before + use * wide(dy).sum(0)) <= 1);
  }
}

void check_products(int64_t m, int64_t k, int64_t n, at::ScalarType type) {
  CAPTURE(m, k, n, type, products_in_use());
  const at::Tensor x = window(m, k, type), w = window(n, k, type, 0.25), dy = window(m, n, type, 0.25);
  const at::Tensor bias = normal({n}, type), product = at::matmul(wide(x), wide(w).t());
  CHECK(roundings(linear_forward(x, w, {}), product) <= 1);
  CHECK(linear_forward(x, w, {}).scalar_type() == type);
  at::Tensor y = window(m, n, type);
  linear_forward_out(y, x, w, bias);
  CHECK(roundings(y, product + wide(bias)) <= 1);

  const at::Tensor input_gradient = at::matmul(wide(dy), wide(w));
  at::Tensor dx = window(m, k, type);
  const at::Tensor before = wide(dx);
  linear_input_gradient_out(dx, dy, w, true);
  CHECK(roundings(dx, before + input_gradient) <= 1);
  linear_input_gradient_out(dx, dy, w, false);
  CHECK(roundings(dx, input_gradient) <= 1);
  check_weight_gradient(dy, x);
}

}  // namespace

TEST_CASE("half-precision products equal float64, rounded once, and gradients of parameters are fp32") {
  const Restore restore;
  std::vector<ProductLibrary> kinds = {ProductLibrary::automatic};
  if (std::string(products_in_use()) != "ATen") kinds.push_back(ProductLibrary::onednn);
  const std::vector<std::vector<int64_t>> sizes = {{1, 1, 1},     {3, 5, 7},     {1, 40, 9},         {64, 32, 48},
                                                   {33, 300, 17}, {1030, 9, 20}, {20, 1030, 9},      {9, 20, 1030},
                                                   {70, 33, 1},   {33, 1, 70},   {1025, 1030, 1027}, {2050, 3, 2}};
  for (const ProductLibrary kind : kinds) {
    use_products(kind);
    for (const auto type : kHalfTypes)
      for (const auto& s : sizes) check_products(s[0], s[1], s[2], type);
  }
}

TEST_CASE("bf16 products may have any number of terms") {
  // Kernels with matrix instructions add the last terms of a sum separately, in ways that depend on their number.
  const auto check = [](int64_t m, int64_t terms, int64_t n) {
    CAPTURE(m, terms, n);
    const at::Tensor x = normal({m, terms}, at::kBFloat16), w = normal({n, terms}, at::kBFloat16);
    CHECK(roundings(linear_forward(x, w, {}), at::matmul(wide(x), wide(w).t())) <= 1);
    check_weight_gradient(x.t().contiguous(), w.t().contiguous());
  };
  for (int64_t terms = 1; terms <= 130; ++terms) check(66, terms, 34);
  for (const int64_t terms : {63, 1343, 1791})
    for (const int64_t m : {41, 70, 172})
      for (const int64_t n : {19, 95, 156}) check(m, terms, n);
}

TEST_CASE("ATen's products, too, add half-precision weight gradients in fp32") {
  const Restore restore;
  use_products(ProductLibrary::aten);
  for (const auto type : kHalfTypes)
    for (const int64_t rows : {1, 50, 1100}) check_weight_gradient(window(rows, 7, type), window(rows, 40, type));
}

TEST_CASE("sums of many half-precision products do not lose the small ones") {
  // In bf16, 256 + 1 is 256, so sums in bf16 would never exceed 256.
  for (const auto type : kHalfTypes) {
    const at::Tensor x = at::full({1, 4000}, 1.0, type), w = at::full({1, 4000}, 1.0, type);
    CHECK(linear_forward(x, w, {}).item<double>() == Approx(4000).epsilon(roundoff(type)));
    const at::Tensor dw = at::zeros({1, 1}), db = at::zeros({1});
    add_weight_gradient(dw, x.t().contiguous(), w.t().contiguous());
    add_bias_gradient(db, x.t().contiguous());
    CHECK(dw.item<float>() == 4000);
    CHECK(db.item<float>() == 4000);
  }
}

TEST_CASE("half-precision products work for an empty microbatch and on a rank without outputs") {
  for (const auto type : kHalfTypes) {
    const at::Tensor w = normal({4, 3}, type), none = at::empty({0, 3}, type), bias = normal({4}, type);
    CHECK(linear_forward(none, w, bias).sizes() == at::IntArrayRef({0, 4}));
    CHECK(linear_input_gradient(at::empty({0, 4}, type), w).sizes() == at::IntArrayRef({0, 3}));
    const at::Tensor dw = at::full({4, 3}, 2.0), db = at::full({4}, 2.0);
    add_weight_gradient(dw, at::empty({0, 4}, type), none);
    add_bias_gradient(db, at::empty({0, 4}, type));
    CHECK(dw.eq(2).all().item<bool>());
    CHECK(db.eq(2).all().item<bool>());
    CHECK(linear_forward(normal({5, 3}, type), none, at::empty({0}, type)).sizes() == at::IntArrayRef({5, 0}));
    CHECK(linear_input_gradient(at::empty({5, 0}, type), none).eq(0).all().item<bool>());
  }
}

TEST_CASE("an fp16 product beyond the type's range is infinite, not wrong") {
  const at::Tensor x = at::full({2, 64}, 200.0, at::kHalf);
  CHECK(linear_forward(x, x, {}).isposinf().all().item<bool>());
  const at::Tensor dw = at::zeros({64, 64});
  add_weight_gradient(dw, x, x);
  CHECK(dw.eq(80000).all().item<bool>());  // fp32 holds it
}

}  // namespace shardline::half_products_test
