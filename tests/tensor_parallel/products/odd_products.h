// Checks on an accelerator the products of a linear layer whose number of outputs does not fill whole packs of tensor
// cores.
#pragma once
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>

#include "tensor_parallel/products/products.h"
#include "tests/tensor_parallel/half.h"

#include "tests/catch.h"

namespace shardline::testing {

// slack: see roundings.
inline void check_odd_products(at::Device device, int64_t rows, int64_t inputs, int64_t outputs, double slack) {
  for (const at::ScalarType type : kHalfTypes) {
    CAPTURE(type, rows, inputs, outputs);
    const auto there = [&](const at::Tensor& t) { return t.to(device); };
    const at::Tensor x = normal({rows, inputs}, type), w = normal({outputs, inputs}, type, 0.25),
                     bias = normal({outputs}, type), dy = normal({rows, outputs}, type, 0.25);
    // Rows of y begin at aligned addresses, like those of logits; the gaps between them stay unchanged.
    const int64_t stride = (outputs + 63) / 64 * 64;
    const at::Tensor room = there(at::full({rows, stride}, 7, type)), y = room.narrow(1, 0, outputs);
    for (const at::Tensor& added : {at::Tensor(), bias}) {
      linear_forward_out(y, there(x), there(w), added.defined() ? there(added) : added);
      at::Tensor product = at::matmul(wide(x), wide(w).t());
      if (added.defined()) product = product + wide(added);
      CHECK(roundings(y.cpu(), product, slack) <= 1);
    }
    CHECK(wide(room.cpu()).narrow(1, outputs, stride - outputs).eq(7).all().item<bool>());

    y.copy_(there(dy));
    const at::Tensor exact = at::matmul(wide(dy), wide(w)), dx = there(normal({rows, inputs}, type));
    const at::Tensor before = wide(dx.cpu());
    linear_input_gradient_out(dx, y, there(w), true);
    CHECK(roundings(dx.cpu(), before + exact, slack) <= 2);  // the product and the sum are rounded
    linear_input_gradient_out(dx, y, there(w), false);
    CHECK(roundings(dx.cpu(), exact, slack) <= 1);

    const at::Tensor dw = at::randn({outputs, inputs}), sums = there(dw);
    add_weight_gradient(sums, y, there(x));
    CHECK(largest(wide(sums.cpu()) - wide(dw) - at::matmul(wide(dy).t(), wide(x))) <= slack * (8 + largest(dw)));
  }
}

}  // namespace shardline::testing
