#include "core/comm/mpi_communicator.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "core/flight/flight_ring.h"
#include "tests/core/comm/communicator_suite.h"
#include "tests/mpi/mpi_main.h"

#include "tests/catch.h"

namespace shardline::mpi_communicator_test {
namespace {

using namespace std::chrono_literals;
using Catch::Contains;
using testing::mpi_test_world;

// How many times this process has mapped shared memory.
int shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:shardline") != std::string::npos;
  return count;
}

// Makes a world with the environment variable set. Collective.
CommunicatorPtr world_with(const char* shared_memory) {
  ::setenv("SHARDLINE_SHARED_MEMORY", shared_memory, 1);
  const CommunicatorPtr world = make_mpi_world().comm;
  ::unsetenv("SHARDLINE_SHARED_MEMORY");
  return world;
}

TEST_CASE("mpi: the communicator suite passes with shared memory and with messages") {
  for (const char* const shared_memory : {"1", "0"}) {
    const CommunicatorPtr world = world_with(shared_memory);
    for (const auto& behaviour : testing::comm_behaviours()) {
      INFO(behaviour.name << " on rank " << world->rank() << " with SHARDLINE_SHARED_MEMORY=" << shared_memory);
      CHECK_NOTHROW(behaviour.check(*world));
    }
  }
}

TEST_CASE("mpi: results are bit-equal to those of threads, with shared memory and with messages") {
  uint64_t over_threads = 0;
  run_ranks(mpi_test_world().comm->size(), [&](CommunicatorPtr thread_world) {
    const uint64_t digest = testing::reduction_digest(*thread_world);
    if (thread_world->rank() == 0) over_threads = digest;
  });
  CHECK(testing::reduction_digest(*world_with("1")) == over_threads);
  CHECK(testing::reduction_digest(*world_with("0")) == over_threads);
}

TEST_CASE("mpi: ranks of one host share memory unless this is switched off") {
  const int before = shared_mappings();
  const CommunicatorPtr with = world_with("1");
  const int more = with->size() > 1 ? 1 : 0;
  CHECK(shared_mappings() == before + more);
  const auto single = with->split(with->rank(), "single");
  CHECK(shared_mappings() == before + more);
  const CommunicatorPtr without = world_with("0");
  CHECK(shared_mappings() == before + more);
  CHECK_THROWS_WITH(world_with("yes"), Contains("SHARDLINE_SHARED_MEMORY must be 0 or 1") && Contains("yes"));
  ::unsetenv("SHARDLINE_SHARED_MEMORY");
}

TEST_CASE("mpi: if ranks disagree about a collective, the error states what each rank requested") {
  Communicator& world = *mpi_test_world().comm;
  if (world.size() == 1) return;
  const auto pair = world.split(world.rank() / 2, "pair");
  if (pair->size() == 1) return;
  const at::Tensor tensor = at::zeros({100000}, at::kFloat);
  const WorkPtr work = pair->rank() == 0 ? pair->all_reduce(tensor) : pair->all_reduce(tensor.narrow(0, 0, 1000));
  CHECK_THROWS_WITH(work->wait(), Contains("disagree") && Contains("float32 x 100000") && Contains("float32 x 1000"));
  const WorkPtr next = pair->all_reduce(tensor);
  CHECK_THROWS_WITH(next->wait(), Contains("disagree"));
}

TEST_CASE("mpi: mismatched operations are an error on every rank, with shared memory and with messages") {
  if (mpi_test_world().comm->size() == 1) return;
  for (const char* const shared_memory : {"1", "0"}) {
    const CommunicatorPtr world = world_with(shared_memory);
    for (const auto& mismatch : testing::comm_mismatches()) {
      INFO(mismatch.name << " on rank " << world->rank() << " with SHARDLINE_SHARED_MEMORY=" << shared_memory);
      const auto group = world->split(0, "mismatch");
      CHECK_THAT(testing::failure_of([&] { mismatch.check(*group); }), Contains("disagree"));
    }
    world->barrier();
  }
}

TEST_CASE("mpi: a message with an unexpected type is an error on its receiver") {
  Communicator& world = *mpi_test_world().comm;
  if (world.size() == 1) return;
  const auto pair = world.split(world.rank() / 2, "pair");
  if (world.rank() == 0) pair->send(at::zeros({6}, at::kFloat), 1)->wait();
  if (world.rank() == 1) {
    const WorkPtr work = pair->recv(at::zeros({6}, at::kInt), 0);
    CHECK_THROWS_WITH(work->wait(), Contains("number 0 of int32 x 6") && Contains("number 0 of float32 x 6"));
  }
  world.barrier();
}

TEST_CASE("mpi: a world reports its rank, size and hosts") {
  const MpiWorld& world = mpi_test_world();
  CHECK(current_rank() == world.comm->rank());
  CHECK(world.local_rank >= 0);
  CHECK(world.local_rank < world.local_size);
  CHECK(world.local_size <= world.comm->size());
  CHECK_THAT(world.library, Contains("MPI"));
  if (world.comm->size() > 1) CHECK(mpi_is_launched());
}

TEST_CASE("mpi: a second world is independent of the first") {
  Communicator& first = *mpi_test_world().comm;
  const MpiWorld second = make_mpi_world();
  const at::Tensor in_first = at::full({100000}, 1, at::kFloat), in_second = at::full({100000}, 2, at::kFloat);
  WorkPtr a, b;
  if (first.rank() % 2 == 0) {
    a = first.all_reduce(in_first);
    b = second.comm->all_reduce(in_second);
  } else {
    b = second.comm->all_reduce(in_second);
    a = first.all_reduce(in_first);
  }
  a->wait();
  b->wait();
  CHECK(at::equal(in_first, at::full({100000}, first.size(), at::kFloat)));
  CHECK(at::equal(in_second, at::full({100000}, 2 * first.size(), at::kFloat)));
}

TEST_CASE("mpi: operations advance while the rank computes") {
  Communicator& world = *mpi_test_world().comm;
  const at::Tensor tensor = at::full({4 << 20}, world.rank(), at::kFloat);
  const WorkPtr work = world.all_reduce(tensor);
  const auto limit = std::chrono::steady_clock::now() + 30s;
  while (!work->poll() && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(1ms);
  CHECK(work->poll());
  work->wait();
  CHECK(tensor.const_data_ptr<float>()[12345] == world.size() * (world.size() - 1) / 2);
}

TEST_CASE("mpi: a dropped operation still reaches the others") {
  Communicator& world = *mpi_test_world().comm;
  if (world.size() == 1) return;
  const int next = (world.rank() + 1) % world.size(), previous = (world.rank() + world.size() - 1) % world.size();
  world.send(at::full({300000}, world.rank(), at::kFloat), next);
  const at::Tensor received = at::zeros({300000}, at::kFloat);
  world.recv(received, previous)->wait();
  CHECK(at::equal(received, at::full({300000}, previous, at::kFloat)));
}

TEST_CASE("mpi: random traffic over several groups gives the right results") {
  Communicator& world = *mpi_test_world().comm;
  const auto left = world.split(world.rank() / 2, "pairs"), right = world.split((world.rank() + 1) / 2, "shifted");
  uint64_t state = 7;
  std::vector<WorkPtr> works;
  std::vector<std::pair<at::Tensor, double>> results;
  for (int i = 0; i < 60; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;  // the same on every rank
    Communicator& comm = *std::vector<Communicator*>{&world, left.get(), right.get()}[(state >> 33) % 3];
    const int64_t n = (state >> 40) % 200000;
    results.emplace_back(at::full({n}, 1 + i, at::kDouble), (1.0 + i) * comm.size());
    works.push_back(comm.all_reduce(results.back().first));
  }
  for (const WorkPtr& work : works) work->wait();
  for (const auto& [tensor, value] : results) CHECK(at::equal(tensor, at::full(tensor.sizes(), value, at::kDouble)));
}

TEST_CASE("mpi: an expired wait states what it waited for") {
  Communicator& world = *mpi_test_world().comm;
  if (world.size() == 1) return;
  const auto pair = world.split(world.rank() / 2, "pair");
  if (world.rank() == 1) {
    const at::Tensor tensor = at::zeros({2, 3}, at::kFloat);
    const WorkPtr work = pair->recv(tensor, 0, {.what = "RecvActivation mb 3", .timeout = 100ms});
    std::string text;
    try {
      work->wait();
    } catch (const DistributedError& error) {
      text = error.what();
    }
    CHECK_THAT(text, Contains("rank 1 on host") && Contains("recv number 0 of float32 [2, 3] from rank 0") &&
                         Contains("group pair of 2 ranks") && Contains("RecvActivation mb 3") &&
                         Contains("(limit 0.1 s)") && Contains("MPI"));
    CHECK(flight_ring().records().back().state == FlightState::failed);
  }
  world.barrier();
  if (world.rank() == 0) pair->send(at::zeros({2, 3}, at::kFloat), 1)->wait();  // so that the job can end
}

TEST_CASE("mpi: a message with an unexpected length is an error that gives both lengths") {
  Communicator& world = *mpi_test_world().comm;
  if (world.size() == 1) return;
  const auto pair = world.split(world.rank() / 2, "pair");
  for (const int64_t expected : {7, 3}) {
    if (world.rank() == 0) pair->send(at::zeros({5}, at::kFloat), 1)->wait();
    if (world.rank() == 1) {
      const WorkPtr work = pair->recv(at::zeros({expected}, at::kFloat), 0);
      CHECK_THROWS_WITH(work->wait(),
                        Contains("group pair") && Contains("float32 x 5") && Contains(cat("float32 x ", expected)));
    }
  }
  world.barrier();
}

}  // namespace
}  // namespace shardline::mpi_communicator_test
