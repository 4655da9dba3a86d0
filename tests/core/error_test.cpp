#include "core/error.h"

#include <thread>

#include "tests/catch.h"

namespace shardline::error_test {

TEST_CASE("cat joins values into a message") {
  CHECK(cat("rank ", 3, " of ", 4) == "rank 3 of 4");
  CHECK(cat(std::string("a"), 'b', 0.5) == "ab0.5");
  CHECK(cat() == "");
}

TEST_CASE("a failed assertion reports rank, file, line, condition and values") {
  set_current_rank(5);
  const int n = 3;
  CHECK_NOTHROW([&] { SL_ASSERT(n == 3, "n is ", n); }());
  try {
    SL_ASSERT(n == 4, "n is ", n);
    FAIL();
  } catch (const InvariantError& error) {
    const std::string what = error.what();
    CHECK(what.find("on rank 5 at ") != std::string::npos);
    CHECK(what.find("error_test.cpp:") != std::string::npos);
    CHECK(what.find("n == 4: n is 3") != std::string::npos);
  }
  CHECK_THROWS_AS([] { SL_ASSERT(false); }(), InvariantError);
  set_current_rank(-1);
}

TEST_CASE("arguments of an assertion that holds are not evaluated") {
  int calls = 0;
  const auto describe = [&] { return ++calls; };
  SL_ASSERT(true, describe());
  CHECK(calls == 0);
}

TEST_CASE("each thread has its own rank number") {
  set_current_rank(1);
  int seen_by_other = 0;
  std::thread([&] {
    seen_by_other = current_rank();
    set_current_rank(2);
  }).join();
  CHECK(seen_by_other == -1);
  CHECK(current_rank() == 1);
  set_current_rank(-1);
}

TEST_CASE("errors can be caught by the exit code that they lead to") {
  CHECK_THROWS_AS(throw DataError("x"), RunError);
  CHECK_THROWS_AS(throw DistributedError("x"), RunError);
  CHECK_THROWS_AS(throw Interrupted("x"), RunError);
  CHECK_THROWS_AS(throw ConfigError("x"), Error);
  CHECK_FALSE(std::is_base_of_v<RunError, ConfigError>);
  CHECK_FALSE(std::is_base_of_v<ConfigError, RunError>);
  CHECK_FALSE(std::is_base_of_v<RunError, InvariantError>);
}

}  // namespace shardline::error_test
