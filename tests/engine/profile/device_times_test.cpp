#include "engine/profile/device_times.h"

#include <cmath>

#include "tests/catch.h"

namespace shardline::device_times_test {
namespace {

using Catch::Matchers::WithinRel;

// What product_rate finds for a device that computes `rate` FLOP/s after 20 us of launches, and the sizes it tries.
struct Found {
  double rate;
  std::vector<int64_t> sizes;
};
Found found_for(double rate) {
  constexpr double kLaunches = 20e-6;
  Found found;
  found.rate = product_rate([&](int64_t size) {
    found.sizes.push_back(size);
    return kLaunches + 2.0 * std::pow(size, 3) / rate;
  });
  return found;
}

}  // namespace

TEST_CASE("the rate of a device is measured with a product that occupies it, however fast it is") {
  CHECK(found_for(1e11).sizes == std::vector<int64_t>{1024});
  CHECK(found_for(1e15).sizes == std::vector<int64_t>{1024, 2048, 4096, 8192});
  for (const double rate : {1e11, 20e12, 312e12, 1e15, 2.5e15}) CHECK_THAT(found_for(rate).rate, WithinRel(rate, 0.03));
}

TEST_CASE("the product that measures a device does not grow beyond its memory") {
  const Found found = found_for(1e20);
  CHECK(found.sizes.back() == 16384);
  CHECK(std::isfinite(found.rate));
}

}  // namespace shardline::device_times_test
