#include "optim/update/learning_rate.h"

#include <vector>

#include "tests/catch.h"

namespace shardline::learning_rate_test {

TEST_CASE("learning rates equal those of transformers.get_scheduler") {
  struct Golden {
    RateSchedule type;
    double warmup;
    int64_t total;
    std::vector<double> rates;  // for steps 1, 2, ..., and beyond the last one
  };
  const Golden golden[] = {
      {RateSchedule::linear, 0, 5, {3e-4, 2.4e-4, 1.8e-4, 1.2e-4, 6e-5, 0, 0}},
      {RateSchedule::linear, 3, 8, {0, 1e-4, 2e-4, 3e-4, 2.4e-4, 1.8e-4, 1.2e-4, 6e-5, 0}},
      {RateSchedule::linear, 5, 5, {0, 6e-5, 1.2e-4, 1.8e-4, 2.4e-4, 0}},
      {RateSchedule::cosine,
       0,
       5,
       {3e-4, 2.713525491562421e-4, 1.963525491562421e-4, 1.036474508437579e-4, 2.8647450843757897e-5, 0}},
      {RateSchedule::cosine,
       3,
       8,
       {0, 1e-4, 2e-4, 3e-4, 2.713525491562421e-4, 1.963525491562421e-4, 1.036474508437579e-4, 2.8647450843757897e-5,
        0}},
      {RateSchedule::constant, 2, 5, {3e-4, 3e-4, 3e-4, 3e-4}},
      {RateSchedule::constant_with_warmup, 3, 8, {0, 1e-4, 2e-4, 3e-4, 3e-4, 3e-4}}};
  for (const auto& g : golden)
    for (size_t i = 0; i < g.rates.size(); ++i) {
      CAPTURE(static_cast<int>(g.type), g.warmup, g.total, i + 1);
      const LearningRateOptions options{g.type, 3e-4, g.warmup, g.total};
      CHECK(learning_rate(options, static_cast<int64_t>(i) + 1) == Approx(g.rates[i]).epsilon(1e-12).margin(1e-18));
    }
}

}  // namespace shardline::learning_rate_test
