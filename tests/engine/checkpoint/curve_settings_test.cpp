#include "engine/checkpoint/curve_settings.h"

#include "tests/catch.h"

namespace shardline::curve_settings_test {

using nlohmann::json;

TEST_CASE("a smaller batch is told from every other difference") {
  Config config;
  const auto settings = [&](int64_t batch, int64_t steps) {
    return curve_settings(config, {.global_batch = batch, .total_steps = steps, .data = "digest"});
  };
  const json before = settings(16, 100);
  CHECK(has_only_smaller_batch(before, settings(8, 200), /*steps_follow=*/true));
  CHECK(has_only_smaller_batch(before, settings(8, 100), /*steps_follow=*/false));
  CHECK_FALSE(has_only_smaller_batch(before, settings(8, 200), /*steps_follow=*/false));
  CHECK_FALSE(has_only_smaller_batch(before, settings(16, 100), true));
  CHECK_FALSE(has_only_smaller_batch(before, settings(32, 100), true));
  config.training.learning_rate *= 2;
  CHECK_FALSE(has_only_smaller_batch(before, settings(8, 200), true));
  CHECK_FALSE(has_only_smaller_batch(json::object(), settings(8, 200), true));
  CHECK_FALSE(has_only_smaller_batch({{kGlobalBatchSetting, "many"}}, settings(8, 200), true));
}

TEST_CASE("another number of steps is reported by the keys that it follows from") {
  const auto settings = [&](int64_t steps) { return curve_settings(Config(), {.total_steps = steps}); };
  CHECK(curve_differences(settings(2000), settings(40)) ==
        "/training/max_steps or num_train_epochs (total steps): 2000 in the checkpoint, 40 now");
}

}  // namespace shardline::curve_settings_test
