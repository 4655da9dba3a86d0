#include "engine/observe/format.h"

#include <cmath>
#include <limits>

#include "tests/catch.h"

namespace shardline::format_test {

TEST_CASE("bytes step to the next unit where one decimal would read 1024.0") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1024) == "1.0 KiB");
  CHECK(format_bytes(1024 * 1024 - 1) == "1.0 MiB");
  CHECK(format_bytes(1.2 * (1 << 30)) == "1.2 GiB");
  CHECK(format_bytes(std::pow(1024., 6) * 3) == "3072.0 PiB");
}

TEST_CASE("counts have thousands' letters") {
  CHECK(format_count(512) == "512");
  CHECK(format_count(0.25) == "0.2");
  CHECK(format_count(39800) == "39.8k");
  CHECK(format_count(999949) == "999.9k");
  CHECK(format_count(999960) == "1.0M");
  CHECK(format_count(-39800) == "-39.8k");
  CHECK(format_count(std::numeric_limits<double>::quiet_NaN()) == "nan");
  CHECK(format_count(-std::numeric_limits<double>::infinity()) == "-inf");
}

TEST_CASE("durations never show sixty of the smaller unit") {
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

TEST_CASE("shares are printed in percent, with as many decimals as asked for") {
  CHECK(format_percent(0.125) == "12.5 %");
  CHECK(format_percent(-0.0004) == "-0.0 %");
  CHECK(format_decimals(2.345, 1) == "2.3");
  CHECK(format_decimals(-1e300, 0).size() == 302);
}

TEST_CASE("tables align words to the left and numbers to the right") {
  CHECK(table({"stage", "layers", "memory"}, {{"0", "embedding, 0-2", "1.2 GiB"}, {"10", "head", "96.0 MiB"}}) ==
        "stage  layers            memory\n"
        "-----  --------------  --------\n"
        "    0  embedding, 0-2   1.2 GiB\n"
        "   10  head            96.0 MiB\n");
}

TEST_CASE("tables take missing cells, no header and letters of more than one byte") {
  CHECK(table({}, {}) == "");
  CHECK(table({}, {{"a", "1"}, {"bcd"}}) == "a    1\nbcd\n");
  CHECK(table({"name", "x"}, {{"\xc3\xa9t\xc3\xa9", "y"}}) == "name  x\n----  -\n\xc3\xa9t\xc3\xa9   y\n");
}

}  // namespace shardline::format_test
