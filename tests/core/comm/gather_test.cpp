#include "core/comm/communicator.h"
#include "core/comm/threads_communicator.h"
#include "tests/core/comm/communicator_suite.h"
#include "tests/core/comm/counting_communicator.h"

#include "tests/catch.h"

namespace shardline::gather_test {
namespace {

using testing::CountingCommunicator;

TEST_CASE("gather: rank 0 receives texts one at a time, and other ranks receive none") {
  constexpr size_t kBytes = 100000;
  const auto text_of = [](int rank) {
    return rank == 2 ? "" : std::string(kBytes + rank, static_cast<char>('a' + rank));
  };
  run_ranks(4, [&](CommunicatorPtr world) {
    CountingCommunicator counted(world);
    int next = 0;
    gather_on_first(counted, text_of(world->rank()), [&](int rank, const std::string& text) {
      EXPECT(rank == next++ && text == text_of(rank), rank);
      // Nothing from the ranks after this one has arrived yet.
      size_t so_far = 0;
      for (int r = 1; r <= rank; ++r) so_far += sizeof(int64_t) + text_of(r).size();
      EXPECT(counted.received_bytes == so_far, rank, " ", counted.received_bytes);
    });
    EXPECT(next == (world->rank() == 0 ? 4 : 0));
    EXPECT(world->rank() == 0 || counted.received_bytes == 0);
  });
}

}  // namespace
}  // namespace shardline::gather_test
