#include "optim/update/loss_scaler.h"

#include <string>
#include <vector>

#include "tests/catch.h"

namespace shardline::loss_scaler_test {
namespace {

// The scale of each step: "x" in `steps` overflows, "." does not.
std::vector<double> scales(const LossScaleOptions& options, const std::string& steps) {
  LossScaler scaler(options);
  std::vector<double> seen;
  for (const char step : steps) {
    seen.push_back(scaler.scale());
    scaler.update(step == 'x');
  }
  seen.push_back(scaler.scale());
  return seen;
}

using Scales = std::vector<double>;

}  // namespace

TEST_CASE("by default the scale begins at 2^32 and halves with every overflow, down to 1") {
  CHECK(scales({}, "xx.") == Scales{4294967296.0, 2147483648.0, 1073741824.0, 1073741824.0});
  CHECK(scales({.initial = 4}, "xxxx") == Scales{4, 2, 1, 1, 1});
  CHECK(scales({.initial = 10, .factor = 4, .least = 3}, "xx") == Scales{10, 3, 3});
}

TEST_CASE("the scale grows after a window of steps without an overflow") {
  // The last overflow counts as step -1 at first: with a window of 3, steps 2 and 5 (counted from 0) let it grow.
  CHECK(scales({.initial = 1, .window = 3}, "......") == Scales{1, 1, 1, 2, 2, 2, 4});
  // After the overflow in step 1, the scale grows after steps 4 and 7.
  CHECK(scales({.initial = 8, .window = 3}, ".x......") == Scales{8, 8, 4, 4, 4, 8, 8, 8, 16});
  CHECK(scales({.initial = 8, .window = 1}, "..x.") == Scales{8, 16, 32, 16, 32});
}

TEST_CASE("with a delayed shift, the scale shrinks after that many overflows and after every further one") {
  CHECK(scales({.initial = 64, .delayed_shift = 3}, "xxxxx") == Scales{64, 64, 64, 32, 16, 8});
  // Good steps between them change nothing, unless they complete a window or only consecutive overflows count.
  CHECK(scales({.initial = 64, .delayed_shift = 2}, "x.x.x") == Scales{64, 64, 64, 32, 32, 16});
  CHECK(scales({.initial = 64, .delayed_shift = 2, .consecutive_hysteresis = true}, "x.x.xx") ==
        Scales{64, 64, 64, 64, 64, 64, 32});
  CHECK(scales({.initial = 64, .window = 2, .delayed_shift = 2}, "x..x.") == Scales{64, 64, 64, 128, 128, 128});
  CHECK(scales({.initial = 64, .window = 2, .delayed_shift = 2}, "x..xx") == Scales{64, 64, 64, 128, 128, 64});
}

TEST_CASE("a static scale stays, and skipped steps are counted") {
  CHECK(scales({.dynamic = false, .initial = 128, .window = 1}, "x..") == Scales{128, 128, 128, 128});
  LossScaler scaler({.dynamic = false});
  for (const bool overflowed : {true, false, true}) scaler.update(overflowed);
  CHECK(scaler.skipped() == 2);
}

TEST_CASE("a run that continues uses its own static scale, or the dynamic scale of the earlier run") {
  LossScaler earlier({.initial = 64});
  earlier.update(true);
  LossScaler constant({.dynamic = false, .initial = 128}), dynamic({.initial = 128});
  for (LossScaler* scaler : {&constant, &dynamic}) {
    scaler->set_state(earlier.state());
    CHECK(scaler->skipped() == 1);
  }
  CHECK(constant.scale() == 128);
  CHECK(dynamic.scale() == 32);
}

}  // namespace shardline::loss_scaler_test
