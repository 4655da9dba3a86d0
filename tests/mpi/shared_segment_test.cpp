#include "core/comm/mpi/shared_segment.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "tests/catch.h"

namespace shardline::mpi::shared_segment_test {
namespace {

constexpr size_t kBytes = 100000;

// The place to which the process that has signed in at `place` writes.
int place_of_text(int place) {
  return 5000 * place;
}

// A process that finds the segment, signs in at a place, writes there, and sleeps until it is killed.
pid_t start_sleeper(const SharedSegment::Offer& offer, int place) {
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto segment = SharedSegment::find(offer, kBytes);
    char good = segment && segment->sign_in(place);
    if (good) std::memcpy(segment->data() + place_of_text(place), "hello", 6);
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

TEST_CASE("shared segment: processes share memory and see which of them are alive") {
  const int processes = GENERATE(2, 3, 5, 6);
  CAPTURE(processes);
  const auto segment = SharedSegment::make(kBytes);
  REQUIRE(segment);
  CHECK(segment->data()[kBytes - 1] == 0);
  CHECK(segment->sign_in(0));
  std::vector<pid_t> children;
  for (int place = 1; place < processes; ++place) {
    CHECK_FALSE(segment->is_signed_in(place));
    children.push_back(start_sleeper(segment->offer(), place));
    CHECK(std::string(segment->data() + place_of_text(place)) == "hello");
    CHECK_FALSE(segment->sign_in(place));  // taken
  }
  for (int place = 1; place < processes; ++place) {
    const pid_t child = children[place - 1];
    CHECK(segment->is_signed_in(place));
    ::kill(child, SIGKILL);
    siginfo_t info;
    ::waitid(P_PID, child, &info, WEXITED | WNOWAIT);  // dead, but nobody has read its exit code
    CHECK_FALSE(segment->is_signed_in(place));
    ::waitpid(child, nullptr, 0);
  }
}

TEST_CASE("shared segment: only the offered segment is opened") {
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

TEST_CASE("shared segment: its name is removed from the file system") {
  const auto segment = SharedSegment::make(kBytes);
  REQUIRE(segment);
  const std::string descriptor = "/proc/self/fd/" + std::to_string(segment->offer().descriptor);
  CHECK(std::filesystem::read_symlink(descriptor) == "/memfd:shardline (deleted)");
}

}  // namespace
}  // namespace shardline::mpi::shared_segment_test
