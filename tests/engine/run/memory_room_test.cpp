#include "engine/run/memory_room.h"

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::memory_room_test {

using Catch::Contains;

TEST_CASE("a host must have room for the copies of a checkpoint of all of its ranks") {
  constexpr double kGiB = 1 << 30;
  const MemoryRoom here{.id = "0", .text = "host a", .free_bytes = 4 * kGiB, .bytes = 8 * kGiB};
  const MemoryRoom there{.id = "2", .text = "host b", .free_bytes = 2 * kGiB, .bytes = 8 * kGiB};
  const auto equal = [](int ranks) { return std::vector<double>(ranks, 1.5 * kGiB); };
  CHECK_NOTHROW(check_snapshot_room({here, here, there}, equal(3)));
  CHECK_THAT(message_of<RunError>([&] {
               check_snapshot_room({here, here, there, there}, equal(4));
             }),
             Contains("on host b this needs 3.0 GiB for 2 rank(s), but 2.0 GiB is available") &&
                 Contains("to use less: training.save_only_model"));
  CHECK_THROWS_AS(check_snapshot_room({here, here, here}, equal(3)), RunError);
  CHECK_NOTHROW(check_snapshot_room({here, here, here, there}, {1 * kGiB, 1 * kGiB, 2 * kGiB, 2 * kGiB}));
}

TEST_CASE("ranks of one host share its memory, for any host names") {
  run_ranks(3, [](CommunicatorPtr world) {
    const auto hosts = gather_host_rooms(*world, {0, 0, 2});
    REQUIRE(hosts.size() == 3);
    CHECK(hosts[0].id == hosts[1].id);
    CHECK(hosts[0].id != hosts[2].id);
    CHECK(hosts[2].text == hosts[0].text);
    CHECK(hosts[2].free_bytes > 0);
    CHECK(hosts[2].free_bytes <= hosts[2].bytes);
    const auto one_host = gather_host_rooms(*world, {});
    CHECK(one_host[0].id == one_host[2].id);
  });
}

}  // namespace shardline::memory_room_test
