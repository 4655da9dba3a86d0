#include "engine/config/rules/precision_rules.h"

#include "tests/engine/config/training_config.h"

#include "tests/catch.h"

namespace shardline::precision_rules_test {

using Catch::Contains;
using nlohmann::json;

TEST_CASE("evaluation has its own precision if the config says so") {
  const auto precision = [](const json& training) {
    return precision_of(in_evaluation_precision(config_with(training)));
  };
  CHECK(precision(json::object()) == Precision::fp32);
  CHECK(precision({{"bf16", true}}) == Precision::bf16);
  CHECK(precision({{"bf16_full_eval", true}}) == Precision::bf16);
  CHECK(precision({{"fp16_full_eval", true}}) == Precision::fp16);
  CHECK(precision({{"fp16", true}, {"bf16_full_eval", true}}) == Precision::bf16);
  CHECK(precision({{"bf16", true}, {"fp16_full_eval", true}}) == Precision::fp16);
}

TEST_CASE("evaluation has one precision") {
  CHECK_THAT(mistake_in({{"bf16_full_eval", true}, {"fp16_full_eval", true}}), Contains("contradicts bf16_full_eval"));
}

}  // namespace shardline::precision_rules_test
