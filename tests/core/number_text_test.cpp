#include "core/number_text.h"

#include <cmath>
#include <limits>

#include "tests/catch.h"

namespace shardline::number_text_test {

TEST_CASE("byte counts switch to the next unit where one decimal would show 1024.0") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1024) == "1.0 KiB");
  CHECK(format_bytes(1024 * 1024 - 1) == "1.0 MiB");
  CHECK(format_bytes(1.2 * (1 << 30)) == "1.2 GiB");
  CHECK(format_bytes(std::pow(1024., 6) * 3) == "3072.0 PiB");
}

TEST_CASE("counts are abbreviated by the letters for thousands, millions and so on") {
  CHECK(format_count(512) == "512");
  CHECK(format_count(0.25) == "0.2");
  CHECK(format_count(39800) == "39.8k");
  CHECK(format_count(999949) == "999.9k");
  CHECK(format_count(999960) == "1.0M");
  CHECK(format_count(-39800) == "-39.8k");
  CHECK(format_count(std::numeric_limits<double>::quiet_NaN()) == "nan");
  CHECK(format_count(-std::numeric_limits<double>::infinity()) == "-inf");
}

TEST_CASE("numbers have the requested number of decimals") {
  CHECK(format_decimals(2.345, 1) == "2.3");
  CHECK(format_decimals(-1e300, 0).size() == 302);
}

}  // namespace shardline::number_text_test
