#include "models/program/ops/dropped_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include "tests/catch.h"

namespace shardline::dropped_attention_test {

TEST_CASE("attention whose probabilities are in memory computes what torch's op computes", "[program]") {
  const bool causal = GENERATE(false, true), grouped = GENERATE(false, true);
  const int mask_kind = GENERATE(0, 1, 2);
  if (causal && mask_kind > 0) return;  // torch takes only one of them
  CAPTURE(causal, grouped, mask_kind);
  const auto options = at::TensorOptions(at::kDouble);
  const auto query = at::randn({2, 4, 5, 3}, options), key = at::randn({2, grouped ? 2 : 4, 5, 3}, options),
             value = at::randn({2, grouped ? 2 : 4, 5, 3}, options);
  std::optional<at::Tensor> mask;
  if (mask_kind == 1) mask = (at::rand({2, 1, 5, 5}) > 0.3).logical_or(at::ones({5, 5}, at::kBool).tril());
  if (mask_kind == 2) mask = at::randn({5, 5}, options);
  const std::optional<double> scale = mask_kind == 0 ? std::optional(0.7) : std::nullopt;
  const auto expected = at::scaled_dot_product_attention(query, key, value, mask, 0.0, causal, scale, grouped);
  at::Tensor seen;
  const auto made = dropped_attention({query, key, value, mask, 0.5, causal, scale, grouped}, [&](const at::Tensor& p) {
    seen = p;
    return p;
  });
  CHECK((made - expected).abs().max().item<double>() < 1e-14);
  CHECK((seen.sum(-1) - 1).abs().max().item<double>() < 1e-14);
}

}  // namespace shardline::dropped_attention_test
