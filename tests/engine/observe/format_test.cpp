#include "engine/observe/format.h"

#include <limits>

#include "tests/catch.h"

namespace shardline::format_test {

TEST_CASE("durations never show 60 seconds or minutes") {
  CHECK(format_duration(0) == "0 us");
  CHECK(format_duration(0.00025) == "250 us");
  CHECK(format_duration(0.412) == "412 ms");
  CHECK(format_duration(0.9996) == "1.00 s");
  CHECK(format_duration(3.21) == "3.21 s");
  CHECK(format_duration(59.996) == "1m 00s");
  CHECK(format_duration(245) == "4m 05s");
  CHECK(format_duration(3599.6) == "1h 00m");
  CHECK(format_duration(7380) == "2h 03m");
  CHECK(format_duration(86400 * 3 + 3600 * 4) == "3d 04h");
  CHECK(format_duration(-1) == "unknown");
  CHECK(format_duration(std::numeric_limits<double>::quiet_NaN()) == "unknown");
  CHECK(format_duration(std::numeric_limits<double>::infinity()) == "unknown");
}

TEST_CASE("shares are printed in percent") {
  CHECK(format_percent(0.125) == "12.5 %");
  CHECK(format_percent(-0.0004) == "-0.0 %");
}

TEST_CASE("tables align words to the left and numbers to the right") {
  CHECK(table({"stage", "layers", "memory"}, {{"0", "embedding, 0-2", "1.2 GiB"}, {"10", "head", "96.0 MiB"}}) ==
        "stage  layers            memory\n"
        "-----  --------------  --------\n"
        "    0  embedding, 0-2   1.2 GiB\n"
        "   10  head            96.0 MiB\n");
}

TEST_CASE("tables may have missing cells, no header, and letters of more than one byte") {
  CHECK(table({}, {}) == "");
  CHECK(table({}, {{"a", "1"}, {"bcd"}}) == "a    1\nbcd\n");
  CHECK(table({"name", "x"}, {{"\xc3\xa9t\xc3\xa9", "y"}}) == "name  x\n----  -\n\xc3\xa9t\xc3\xa9   y\n");
}

}  // namespace shardline::format_test
