#include "engine/run/memory_room.h"

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::memory_room_test {

using Catch::Contains;

TEST_CASE("the copies of a checkpoint of all ranks of a host must have room there") {
  constexpr double kGiB = 1 << 30;
  const HostNeed here{.host = 0, .name = "a", .available_bytes = 4 * kGiB, .bytes = 1.5 * kGiB};
  const HostNeed there{.host = 2, .name = "b", .available_bytes = 2 * kGiB, .bytes = 1.5 * kGiB};
  const HostNeed unknown{.host = 3, .name = "c", .available_bytes = 0, .bytes = 100 * kGiB};
  CHECK_NOTHROW(check_snapshot_room({here, here, there, unknown}));
  CHECK_THAT(message_of<RunError>([&] {
               check_snapshot_room({here, here, there, there});
             }),
             Contains("on host b this needs 3.0 GiB for 2 rank(s), but 2.0 GiB are available") &&
                 Contains("to use less: training.save_only_model"));
  CHECK_THROWS_AS(check_snapshot_room({here, here, here}), RunError);
}

TEST_CASE("each rank says what it needs of its host") {
  run_ranks(3, [](CommunicatorPtr world) {
    const auto needs = gather_host_needs(*world, {0, 0, 2}, 10.0 * world->rank());
    REQUIRE(needs.size() == 3);
    for (int rank = 0; rank < 3; ++rank) CHECK(needs[rank].bytes == 10.0 * rank);
    CHECK(needs[1].host == 0);
    CHECK(needs[2].host == 2);
    CHECK(needs[2].available_bytes > 0);
  });
}

}  // namespace shardline::memory_room_test
