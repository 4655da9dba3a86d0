#include "models/program/ops/attention_op.h"

#include <ATen/ops/tensor.h>

#include "models/graph/autocast_mode.h"
#include "models/program/ops/dropped_attention.h"
#include "tensor_parallel/kernels/aten/aten_random.h"
#include "tests/models/program/ops/compared_ops.h"

#include "tests/catch.h"

namespace shardline::attention_op_test {
namespace {

using namespace compared_ops;
using c10::IValue;

constexpr int64_t kSamples = 2, kHeads = 3, kLength = 5, kFeatures = 4;

at::Tensor by_head(double seed) {
  return numbers({kSamples, kLength, kHeads, kFeatures}, seed).transpose(1, 2);
}

torch::jit::Stack arguments(bool causal, IValue scale = {}) {
  return {by_head(1), by_head(2), by_head(3), IValue(), 0.0, causal, std::move(scale), false};
}

}  // namespace

TEST_CASE("attention and its gradients equal those of ATen", "[own_ops]") {
  const bool causal = GENERATE(false, true);
  for (const IValue& scale : {IValue(), IValue(0.7)}) {
    const auto given = arguments(causal, scale);
    const Computed own = computed(
        [](auto& stack) {
          REQUIRE(is_own_attention(stack, {}));
          stack = {own_attention(stack, {})};
        },
        given, {0, 1, 2}, false);
    const Computed aten =
        computed([](auto& stack) { run_aten("aten::scaled_dot_product_attention", stack); }, given, {0, 1, 2}, false);
    CHECK(difference(own.result, aten.result) < 1e-13);
    for (int i = 0; i < 3; ++i) CHECK(difference(own.gradients[i], aten.gradients[i]) < 1e-13);
  }
}

TEST_CASE("attention kernels drop the probabilities that a mask in memory drops", "[own_ops]") {
  constexpr int64_t kPlaces = 16, kFirstHead = 2, kFirstPlace = 3;
  const AttentionDropout dropout{.seed = 7,
                                 .op = 3,
                                 .step = 2,
                                 .probability = 0.4,
                                 .samples = at::tensor({5, 1}, at::kLong),
                                 .first_places = at::tensor({kFirstPlace, kFirstPlace}, at::kLong),
                                 .first_head = kFirstHead,
                                 .max_positions = kPlaces};
  const auto in_memory = [&](const at::Tensor& probabilities) {
    const auto place = at::arange(kLength) + kFirstPlace;
    const auto head = (at::arange(kHeads) + kFirstHead).view({-1, 1, 1});
    const auto element = (head * kPlaces + place.unsqueeze(1)) * kPlaces + place;
    const auto kept = aten::random_keep({.seed = dropout.seed, .op = dropout.op, .step = dropout.step},
                                        dropout.samples.view({-1, 1, 1, 1}), element, 0.6);
    return probabilities * kept / 0.6;
  };
  const auto given = arguments(true);
  const Computed own = computed([&](auto& stack) { stack = {own_attention(stack, dropout)}; }, given, {0, 1, 2}, false);
  const Computed masked =
      computed([&](auto& stack) { stack = {dropped_attention(stack, in_memory)}; }, given, {0, 1, 2}, false);
  CHECK(difference(own.result, masked.result) < 1e-13);
  for (int i = 0; i < 3; ++i) CHECK(difference(own.gradients[i], masked.gradients[i]) < 1e-13);
  CHECK(difference(own.result,
                   computed([](auto& stack) { stack = {own_attention(stack, {})}; }, given, {}, false).result) > 0.1);
}

TEST_CASE("other kinds of attention are left to ATen", "[own_ops]") {
  auto given = arguments(false);
  CHECK(is_own_attention(given, {}));
  given[3] = numbers({kLength, kLength}, 4);  // a mask
  CHECK(!is_own_attention(given, {}));
  given = arguments(false);
  given[1] = by_head(2).narrow(2, 0, 3);  // fewer keys than queries
  given[2] = by_head(3).narrow(2, 0, 3);
  CHECK(!is_own_attention(given, {}));
  given = arguments(false);
  given[2] = numbers({kSamples, kHeads, kLength, kFeatures + 1}, 3);
  CHECK(!is_own_attention(given, {}));
  given = arguments(false);
  given[0] = numbers({kSamples, kHeads, kFeatures, kLength}, 1).transpose(2, 3);
  CHECK(!is_own_attention(given, {}));
  given = arguments(false);
  for (int i = 0; i < 3; ++i) given[i] = given[i].toTensor().to(at::kFloat);
  CHECK(is_own_attention(given, {}));
  const AutocastMode autocast(at::kCPU, at::kBFloat16);  // which rounds fp32
  CHECK(!is_own_attention(given, {}));
}

}  // namespace shardline::attention_op_test
