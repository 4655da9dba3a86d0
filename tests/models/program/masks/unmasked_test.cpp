#include "models/program/masks/unmasked.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <algorithm>

#include "models/program/operators.h"
#include "models/program/program_inputs.h"
#include "tests/models/golden.h"
#include "tests/models/program/pairs_program.h"
#include "tests/models/program/program_run.h"

#include "tests/catch.h"

namespace shardline::unmasked_test {
namespace {

int64_t masked_attentions(const Program& program) {
  return std::ranges::count_if(program.graph().nodes, [](const GraphNode& node) {
    return node.name == kAttention && node.arguments[place_of_argument(node, "attn_mask")].value >= 0;
  });
}

}  // namespace

TEST_CASE("masks that hide nothing are dropped where nothing is padded", "[program]") {
  const auto program = pairs_program::pairs();
  const auto both = with_unmasked(program, 8);
  REQUIRE(both->unmasked);
  CHECK(masked_attentions(*both) == 8);
  CHECK(masked_attentions(*both->unmasked) == 5);  // biases are trained; the masks of the encoder's states are dropped
  ProgramRun masked(program, at::kDouble), unmasked(both, at::kDouble);
  for (const auto& samples : {std::vector{1}, std::vector{0, 1, 2}}) {
    const Microbatch batch = pairs_program::batch_of(samples);
    CHECK(unmasked.train(batch).sum == Approx(masked.train(batch).sum).epsilon(1e-14));
  }
  CHECK(largest_difference(masked.gradients(), unmasked.gradients()) < 1e-12);
}

TEST_CASE("a window is a mask, however long it is", "[program]") {
  const auto program = cut_program(read_pt2(golden("program/window.pt2")));  // its samples see 8 tokens
  CHECK(!with_unmasked(program, 20)->unmasked);
  const auto shorter = with_unmasked(program, 8);
  REQUIRE(shorter->unmasked);
  CHECK(shorter->unmasked_length == 8);
  ProgramRun masked(program, at::kDouble), both(shorter, at::kDouble);
  for (const int64_t length : {8, 20}) {
    CAPTURE(length);
    const Microbatch batch = sample_batch(*program, at::arange(2 * length).remainder(12).view({2, length}), 0);
    CHECK(both.train(batch).sum == Approx(masked.train(batch).sum).epsilon(1e-14));
  }
}

}  // namespace shardline::unmasked_test
