#include "core/comm/rank_groups.h"

#include <ATen/ops/tensor.h>

#include <mutex>

#include "core/comm/threads_communicator.h"
#include "core/error.h"

#include "tests/catch.h"

namespace shardline::rank_groups_test {

TEST_CASE("every communicator joins exactly the ranks that the mesh names, in ascending order") {
  for (const char* placement : {"cluster", "spread", "PDT"}) {
    const Mesh mesh(placement, 2, 3, 2);
    std::string mistakes;
    std::mutex mutex;
    run_ranks(mesh.size(), [&](CommunicatorPtr world) {
      const RankGroups groups = make_rank_groups(mesh, world, world);
      std::string mine;
      if (groups.rank != world->rank() || groups.coordinates != mesh.at(world->rank()))
        mine += cat("rank ", world->rank(), "\n");
      const std::pair<Group, Communicator*> all[] = {
          {Group::pp, groups.pp.get()}, {Group::tp, groups.tp.get()}, {Group::rdp, groups.rdp.get()},
          {Group::dp, groups.dp.get()}, {Group::mp, groups.mp.get()}, {Group::world, groups.world.get()}};
      for (const auto& [group, comm] : all) {
        const auto expected = mesh.members(group, groups.rank);
        const auto got = gather_to_all(*comm, at::tensor({groups.rank}, at::kLong));
        bool same = comm->size() == std::ssize(expected) && expected[comm->rank()] == groups.rank;
        for (int i = 0; same && i < comm->size(); ++i) same = got[i].item<int64_t>() == expected[i];
        if (!same) mine += cat(to_string(group), " of rank ", groups.rank, "\n");
      }
      if (groups.pp->rank() != groups.coordinates.p || groups.tp->rank() != groups.coordinates.t)
        mine += "stage or tensor rank\n";
      std::scoped_lock lock(mutex);
      mistakes += mine;
    });
    CAPTURE(placement);
    CHECK(mistakes == "");
  }
}

TEST_CASE("a mesh whose size differs from the world's fails an assertion") {
  CHECK_THROWS_AS(run_ranks(3, [](CommunicatorPtr world) { make_rank_groups(Mesh("cluster", 1, 2, 1), world, world); }),
                  InvariantError);
}

}  // namespace shardline::rank_groups_test
