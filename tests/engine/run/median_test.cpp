#include "engine/run/median.h"

#include "tests/catch.h"

namespace shardline::median_test {

TEST_CASE("the median is the middle value, or the mean of the two in the middle") {
  CHECK(median({3}) == 3);
  CHECK(median({9, 1, 5}) == 5);
  CHECK(median({4, 1, 8, 2}) == 3);
}

}  // namespace shardline::median_test
