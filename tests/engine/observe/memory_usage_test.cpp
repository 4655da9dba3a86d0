#include "engine/observe/memory_usage.h"

#include <vector>

#include "tests/catch.h"

namespace shardline::memory_usage_test {

TEST_CASE("touched pages count as resident, and the peak does not decrease") {
  const ProcessMemory before = process_memory();
  CHECK(before.resident > 1 << 20);
  CHECK(before.peak_resident >= before.resident);
  const int64_t size = 64 << 20;
  {
    std::vector<char> block(size, 1);
    CHECK(process_memory().anonymous > before.anonymous + size / 2);
    CHECK(process_memory().resident > before.resident + size / 2 - (block[size - 1] - 1));
  }
  CHECK(process_memory().peak_resident > before.resident + size / 2);
}

}  // namespace shardline::memory_usage_test
