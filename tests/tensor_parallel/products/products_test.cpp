#include "tensor_parallel/products/products.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <string>
#include <thread>
#include <vector>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::products_test {
namespace {

struct Restore {
  ~Restore() { use_products(ProductLibrary::automatic); }
};

bool has_onednn() {
  return std::string(products_in_use()) != "ATen";
}

// Relative to the largest entry; sums have up to 300 terms.
void check_close(const at::Tensor& got, const at::Tensor& exact) {
  REQUIRE(got.sizes() == exact.sizes());
  if (got.numel() == 0) return;
  const double tolerance = got.scalar_type() == at::kDouble ? 1e-14 : 2e-6;
  const double scale = std::max(1.0, exact.abs().max().item<double>());
  CHECK((got.to(at::kDouble) - exact).abs().max().item<double>() <= tolerance * scale);
}

at::Tensor wide(const at::Tensor& t) {
  return t.to(at::kDouble, false, true);  // always a copy
}

// A [rows, columns] window of a larger tensor, so that rows are strided; the rest is `outside`.
at::Tensor window(int64_t rows, int64_t columns, at::ScalarType type, double outside) {
  at::Tensor whole = at::full({rows + 2, columns + 5}, outside, type);
  at::Tensor inner = whole.narrow(0, 1, rows).narrow(1, 3, columns);
  inner.copy_(at::randn({rows, columns}));
  return inner;
}

void check_products(int64_t m, int64_t k, int64_t n, at::ScalarType type) {
  CAPTURE(m, k, n, products_in_use());
  const at::Tensor x = window(m, k, type, 1e30), w = window(n, k, type, 1e30), dy = window(m, n, type, 1e30);
  const at::Tensor bias = at::randn({n}, type);
  const at::Tensor product = at::matmul(wide(x), wide(w).t());
  check_close(linear_forward(x, w, {}), product);
  check_close(linear_forward(x, w, bias), product + wide(bias));

  at::Tensor y = window(m, n, type, 7);
  linear_forward_out(y, x, w, bias);
  check_close(y, product + wide(bias));

  const at::Tensor input_gradient = at::matmul(wide(dy), wide(w));
  check_close(linear_input_gradient(dy, w), input_gradient);
  at::Tensor dx = window(m, k, type, 7);
  const at::Tensor before = wide(dx);
  linear_input_gradient_out(dx, dy, w, true);
  check_close(dx, before + input_gradient);
  linear_input_gradient_out(dx, dy, w, false);
  check_close(dx, input_gradient);

  at::Tensor dw = at::randn({n, k}, type), db = at::randn({n}, type);
  const at::Tensor dw_before = wide(dw), db_before = wide(db);
  for (int use = 1; use <= 2; ++use) {
    add_weight_gradient(dw, dy, x);
    add_bias_gradient(db, dy);
    check_close(dw, dw_before + use * at::matmul(wide(dy).t(), wide(x)));
    check_close(db, db_before + use * wide(dy).sum(0));
  }
}

}  // namespace

TEST_CASE("Products agree with float64, strided rows and odd sizes included") {
  const Restore restore;
  const std::vector<std::vector<int64_t>> sizes = {{1, 1, 1}, {3, 5, 7}, {64, 32, 48}, {33, 300, 17}, {300, 65, 129}};
  std::vector<ProductLibrary> kinds = {ProductLibrary::aten, ProductLibrary::automatic};
  if (has_onednn()) kinds.push_back(ProductLibrary::onednn);
  for (const ProductLibrary kind : kinds) {
    use_products(kind);
    for (const auto& s : sizes) {
      check_products(s[0], s[1], s[2], at::kFloat);
      check_products(s[0], s[1], s[2], at::kDouble);
    }
  }
}

TEST_CASE("The stride of a single row or column does not matter") {
  const Restore restore;
  use_products(ProductLibrary::automatic);
  const at::Tensor numbers = at::randn({100});
  const at::Tensor column = numbers.as_strided({14, 1}, {1, 7}), row = numbers.as_strided({1, 8}, {3, 1});
  const at::Tensor w = at::randn({3, 1}), wide_w = at::randn({3, 8});
  check_close(linear_forward(column, w, {}), at::matmul(wide(column), wide(w).t()));
  check_close(linear_forward(row, wide_w, {}), at::matmul(wide(row), wide(wide_w).t()));
  check_close(linear_forward(wide_w, row, {}), at::matmul(wide(wide_w), wide(row).t()));
}

TEST_CASE("Products work for an empty microbatch and on a rank without outputs") {
  const at::Tensor w = at::randn({4, 3}), none = at::empty({0, 3}), bias = at::randn({4});
  CHECK(linear_forward(none, w, bias).sizes() == at::IntArrayRef({0, 4}));
  CHECK(linear_input_gradient(at::empty({0, 4}), w).sizes() == at::IntArrayRef({0, 3}));
  at::Tensor dw = at::full({4, 3}, 2.0), db = at::full({4}, 2.0);
  add_weight_gradient(dw, at::empty({0, 4}), none);
  add_bias_gradient(db, at::empty({0, 4}));
  CHECK(dw.eq(2).all().item<bool>());
  CHECK(db.eq(2).all().item<bool>());

  const at::Tensor x = at::randn({5, 3}), no_rows = at::empty({0, 3});
  CHECK(linear_forward(x, no_rows, at::empty({0})).sizes() == at::IntArrayRef({5, 0}));
  CHECK(linear_input_gradient(at::empty({5, 0}), no_rows).eq(0).all().item<bool>());
  at::Tensor dx = at::full({5, 3}, 2.0);
  linear_input_gradient_out(dx, at::empty({5, 0}), no_rows, true);
  CHECK(dx.eq(2).all().item<bool>());
}

TEST_CASE("A bf16 weight gradient is added to fp32") {
  const at::Tensor dy = at::randn({9, 4}).to(at::kBFloat16), x = at::randn({9, 6}).to(at::kBFloat16);
  at::Tensor dw = at::full({4, 6}, 1.0), db = at::full({4}, 1.0);
  add_weight_gradient(dw, dy, x);
  add_bias_gradient(db, dy);
  const at::Tensor exact = 1 + at::matmul(wide(dy).t(), wide(x));
  CHECK((wide(dw) - exact).abs().max().item<double>() < 0.1);
  CHECK((wide(db) - 1 - wide(dy).sum(0)).abs().max().item<double>() < 1e-5);
}

TEST_CASE("A sum over rows does not depend on the number of threads") {
  const int threads = at::get_num_threads();
  const at::Tensor dy = at::randn({1000, 333});
  std::vector<at::Tensor> sums;
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    sums.push_back(at::zeros({333}));
    add_bias_gradient(sums.back(), dy);
  }
  at::set_num_threads(threads);
  CHECK(sums[0].equal(sums[1]));
  CHECK(sums[0].equal(sums[2]));
}

TEST_CASE("Ranks that are threads multiply at the same time") {
  const at::Tensor x = at::randn({64, 96}), w = at::randn({80, 96});
  const at::Tensor exact = at::matmul(wide(x), wide(w).t());
  std::vector<at::Tensor> results(4);
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < results.size(); ++rank)
    ranks.emplace_back([&, rank] {
      at::set_num_threads(1);
      for (int repeat = 0; repeat < 20; ++repeat) results[rank] = linear_forward(x, w, {});
    });
  for (auto& rank : ranks) rank.join();
  for (const auto& y : results) {
    check_close(y, exact);
    CHECK(y.equal(results[0]));
  }
}

TEST_CASE("Products are chosen by name, and oneDNN is refused if it is not available") {
  const Restore restore;
  use_products(ProductLibrary::automatic);
  const bool there = has_onednn();
  use_products(ProductLibrary::aten);
  CHECK(std::string(products_in_use()) == "ATen");
  if (there) {
    use_products(ProductLibrary::onednn);
    CHECK(std::string(products_in_use()).substr(0, 7) == "oneDNN ");
  } else {
    CHECK_THROWS_AS(use_products(ProductLibrary::onednn), ConfigError);
  }
}

}  // namespace shardline::products_test
