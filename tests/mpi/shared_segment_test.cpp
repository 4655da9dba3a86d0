#include "core/mpi/shared_segment.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "tests/catch.h"

namespace shardline::mpi {
namespace {

constexpr size_t kBytes = 100000;

// A process that finds the segment, signs in at a place, writes there, and sleeps until it is killed.
pid_t start_sleeper(const SharedSegment::Offer& offer, int place) {
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto segment = SharedSegment::find(offer, kBytes);
    char good = segment && segment->sign_in(place);
    if (good) std::memcpy(segment->data() + 5000, "hello", 6);
    if (::write(ready[1], &good, 1) == 1) ::pause();
    ::_exit(0);
  }
  char good = 0;
  CHECK(::read(ready[0], &good, 1) == 1);
  CHECK(good == 1);
  ::close(ready[0]);
  ::close(ready[1]);
  return child;
}

TEST_CASE("shared segment: processes see the same memory and who of them lives") {
  const auto segment = SharedSegment::make(kBytes);
  REQUIRE(segment);
  CHECK(segment->data()[kBytes - 1] == 0);
  CHECK(segment->sign_in(0));
  CHECK_FALSE(segment->is_signed_in(1));
  const pid_t child = start_sleeper(segment->offer(), 1);
  CHECK(std::string(segment->data() + 5000) == "hello");
  CHECK(segment->is_signed_in(1));
  CHECK_FALSE(segment->sign_in(1));  // taken
  ::kill(child, SIGKILL);
  siginfo_t info;
  ::waitid(P_PID, child, &info, WEXITED | WNOWAIT);  // dead, but nobody has asked for its exit code
  CHECK_FALSE(segment->is_signed_in(1));
  ::waitpid(child, nullptr, 0);
}

TEST_CASE("shared segment: only the very segment that was offered is found") {
  const auto segment = SharedSegment::make(kBytes);
  REQUIRE(segment);
  SharedSegment::Offer offer = segment->offer();
  CHECK(SharedSegment::find(offer, kBytes));
  CHECK_FALSE(SharedSegment::find(offer, kBytes + 1));
  offer.token += 2;
  CHECK_FALSE(SharedSegment::find(offer, kBytes));
  CHECK_FALSE(SharedSegment::find({}, kBytes));
  CHECK_FALSE(SharedSegment::find({offer.process, 0, offer.token}, kBytes));  // standard input
}

TEST_CASE("shared segment: has no name that could stay behind") {
  const auto segment = SharedSegment::make(kBytes);
  REQUIRE(segment);
  const std::string descriptor = "/proc/self/fd/" + std::to_string(segment->offer().descriptor);
  CHECK(std::filesystem::read_symlink(descriptor) == "/memfd:shardline (deleted)");
}

}  // namespace
}  // namespace shardline::mpi
