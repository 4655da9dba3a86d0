#include "engine/metrics/rouge.h"

#include "tests/catch.h"

namespace shardline::rouge_test {

TEST_CASE("scores equal those of rouge_score") {
  struct Case {
    const char *prediction, *reference;
    double rouge1, rouge2, rouge_l, rouge_lsum;
  };
  for (const auto& [prediction, reference, rouge1, rouge2, rouge_l, rouge_lsum] :
       {Case{"the cat sat on the mat", "the cat was on a mat", 0.6666666666666666, 0.2, 0.6666666666666666,
             0.6666666666666666},
        Case{"A b.\nC d e, f!", "a B c\nf e d c\n\nb a", 0.8, 0.3076923076923077, 0.5333333333333333,
             0.5333333333333333},
        Case{"", "x", 0, 0, 0, 0}, Case{"the the the", "the", 0.5, 0, 0.5, 0.5},
        Case{"x y z\nx y", "x y\ny x\nz z z", 0.8333333333333333, 0.2, 0.5, 0.6666666666666666}}) {
    CAPTURE(prediction, reference);
    const RougeScores scores = rouge(prediction, reference);
    CHECK(scores.rouge1 == Approx(rouge1).margin(1e-15));
    CHECK(scores.rouge2 == Approx(rouge2).margin(1e-15));
    CHECK(scores.rouge_l == Approx(rouge_l).margin(1e-15));
    CHECK(scores.rouge_lsum == Approx(rouge_lsum).margin(1e-15));
  }
}

}  // namespace shardline::rouge_test
