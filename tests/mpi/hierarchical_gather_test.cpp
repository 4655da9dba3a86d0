#include "core/comm/hierarchical_gather.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "core/error.h"
#include "tests/core/comm/communicator_suite.h"
#include "tests/mpi/mpi_main.h"

#include "tests/catch.h"

namespace shardline::hierarchical_gather_test {
namespace {

using testing::mpi_test_world;

TEST_CASE("mpi: every rank knows the hosts of all") {
  const MpiWorld& world = mpi_test_world();
  REQUIRE(static_cast<int>(world.host_of.size()) == world.comm->size());
  // All ranks of the tests are on this machine.
  for (const int host : world.host_of) CHECK(host == 0);
}

TEST_CASE("mpi: a gather in two steps gives each rank the result of one all-gather, even if several run at once") {
  const CommunicatorPtr world = mpi_test_world().comm;
  const int rank = world->rank();
  for (const int host : {rank / 2, rank % 2}) {  // pretends that each pair of ranks has a host of its own
    const CommunicatorPtr wrapped = with_hierarchical_gather(world, host);
    CHECK((wrapped != world) == (world->size() % 2 == 0 && world->size() > 2));
    std::vector<at::Tensor> one, two;
    std::vector<WorkPtr> works;
    for (const int64_t length : {1, 100, 300000, 7, 1000000}) {
      const at::Tensor mine = at::arange(length, at::kFloat).add_(1000 * rank);
      one.push_back(at::zeros({world->size() * length}));
      two.push_back(at::zeros_like(one.back()));
      world->all_gather(one.back(), mine)->wait();
      works.push_back(wrapped->all_gather(two.back(), mine, {.what = "values"}));
    }
    for (size_t i = works.size(); i-- > 0;) {
      works[i]->wait();
      CHECK(at::equal(one[i], two[i]));
    }
  }
}

TEST_CASE("mpi: the communicator suite passes over several hosts") {
  const CommunicatorPtr world = mpi_test_world().comm;
  const CommunicatorPtr wrapped = with_hierarchical_gather(world, world->rank() / 2);
  for (const auto& behaviour : testing::comm_behaviours()) {
    INFO(behaviour.name << " on rank " << world->rank());
    CHECK_NOTHROW(behaviour.check(*wrapped));
  }
}

}  // namespace
}  // namespace shardline::hierarchical_gather_test
