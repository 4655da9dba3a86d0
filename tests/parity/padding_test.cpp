// Rows of data that are padded and masked give the run of the same rows without padding.
#include "tests/parity/run.h"

#include "tests/catch.h"

namespace shardline::parity::padding_test {
namespace {

Point padded(Point point, const char* padding) {
  point.padding = padding;
  return point;
}

}  // namespace

TEST_CASE("padded and masked rows give the bits of rows without padding", "[parity][padding]") {
  for (const auto& [model, task] : {std::pair{"bert", "sequence-classification"},
                                    {"xlm-roberta", "token-classification"},
                                    {"roberta", "question-answering"},
                                    {"distilbert", "masked-lm"},
                                    {"gpt2", "completions"}}) {
    const Point plain{.microbatches = 3, .dropout = true, .ignored = true, .model = model, .task = task, .steps = 2};
    const Outcome outcome = run_point(plain);
    for (const char* padding : {"left", "right"}) {
      CAPTURE(model, task, padding);
      CHECK(bit_equal(run_point(padded(plain, padding)), outcome));
    }
  }
}

TEST_CASE("counting the padding of rows changes gradients", "[parity][padding]") {
  const Point plain{.model = "bert", .task = "sequence-classification", .steps = 1};
  const Difference d = compare(run_point(padded(plain, "counted")), run_point(plain), limits_of(plain));
  CHECK(d.gradient > 1e-3);
}

}  // namespace shardline::parity::padding_test
