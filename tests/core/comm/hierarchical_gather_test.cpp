#include "core/comm/hierarchical_gather.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "core/flight/flight_ring.h"
#include "tests/core/comm/communicator_suite.h"

#include "tests/catch.h"

namespace shardline::hierarchical_gather_test {
namespace {

using namespace std::chrono_literals;
using Hosts = std::vector<int>;

CommunicatorPtr over_hosts(const CommunicatorPtr& world, const Hosts& host_of) {
  return with_hierarchical_gather(world, host_of[world->rank()]);
}

void run_over_hosts(const Hosts& host_of, const std::function<void(CommunicatorPtr, CommunicatorPtr)>& fn) {
  run_ranks(static_cast<int>(host_of.size()), [&](CommunicatorPtr world) { fn(world, over_hosts(world, host_of)); });
}

at::Tensor part_of(int rank, int64_t length, at::ScalarType type) {
  return at::arange(rank * 1000, rank * 1000 + length, at::kLong).to(type);
}

TEST_CASE("hosts with equally many ranks form a grid, whether their ranks are adjacent or alternate") {
  CHECK(host_grid({7}) == HostGrid{1, 1, false});
  CHECK(host_grid({3, 3, 3}) == HostGrid{1, 3, false});
  CHECK(host_grid({0, 1, 2}) == HostGrid{3, 1, false});
  CHECK(host_grid({5, 5, 2, 2, 9, 9}) == HostGrid{3, 2, false});
  CHECK(host_grid({5, 2, 5, 2, 5, 2}) == HostGrid{2, 3, true});
  CHECK(host_grid({0, 1, 2, 0, 1, 2}) == HostGrid{3, 2, true});
  for (const Hosts& other : {Hosts{0, 0, 1}, {0, 0, 0, 1}, {0, 1, 1, 0}, {0, 0, 1, 1, 1, 0}, {0, 0, 0, 1, 2, 2}}) {
    CAPTURE(other);
    CHECK(host_grid(other) == std::nullopt);
  }
}

TEST_CASE("every rank of a grid has exactly one host and one place on it") {
  for (const HostGrid& grid : {HostGrid{3, 2, false}, HostGrid{3, 2, true}, HostGrid{1, 4, false}})
    for (int host = 0; host < grid.hosts; ++host)
      for (int place = 0; place < grid.per_host; ++place) {
        const int rank = grid.rank(host, place);
        CAPTURE(grid.hosts, grid.in_turns, rank);
        CHECK((rank >= 0 && rank < grid.hosts * grid.per_host));
        CHECK((grid.host(rank) == host && grid.place(rank) == place));
      }
}

TEST_CASE("one host, one rank per host, or uneven hosts leave the communicator unchanged") {
  for (const Hosts& hosts : {Hosts{0}, {4, 4, 4}, {0, 1, 2, 3}, {0, 0, 1}, {0, 1, 1, 0}}) {
    CAPTURE(hosts);
    CHECK_NOTHROW(
        run_over_hosts(hosts, [](CommunicatorPtr world, CommunicatorPtr wrapped) { EXPECT(world == wrapped); }));
  }
}

const std::vector<Hosts> kEven = {{0, 0, 1, 1},       {0, 1, 0, 1},       {9, 9, 4, 4, 7, 7},
                                  {2, 1, 0, 2, 1, 0}, {0, 0, 0, 1, 1, 1}, {0, 1, 0, 1, 0, 1, 0, 1}};

TEST_CASE("a gather in two steps gives each rank the result of one all-gather, for any number of hosts") {
  std::vector<Hosts> layouts = kEven;
  layouts.insert(layouts.end(), {{0, 0, 1}, {0, 1, 1, 0}});
  for (const Hosts& hosts : layouts) {
    CAPTURE(hosts);
    CHECK_NOTHROW(run_over_hosts(hosts, [&](CommunicatorPtr world, CommunicatorPtr wrapped) {
      EXPECT(wrapped->rank() == world->rank() && wrapped->size() == world->size() && wrapped->name() == world->name());
      for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong, at::kByte})
        for (const int64_t length : {1, 7, 1000}) {
          const at::Tensor mine = part_of(world->rank(), length, type);
          const at::Tensor one = at::zeros({world->size() * length}, mine.options()), two = at::zeros_like(one);
          world->all_gather(one, mine)->wait();
          wrapped->all_gather(two, mine, {.what = "values"})->wait();
          EXPECT(at::equal(one, two), "of ", length);
        }
    }));
  }
}

TEST_CASE("the input may be the rank's own part of the output, and tensors may have any number of dimensions") {
  for (const Hosts& hosts : kEven)
    CHECK_NOTHROW(run_over_hosts(hosts, [&](CommunicatorPtr world, CommunicatorPtr wrapped) {
      const at::Tensor all = at::zeros({world->size(), 2, 3});
      all[world->rank()].fill_(world->rank() + 1);
      wrapped->all_gather(all, all[world->rank()])->wait();
      for (int rank = 0; rank < world->size(); ++rank) EXPECT(at::equal(all[rank], at::full({2, 3}, rank + 1.0f)));
      wrapped->all_gather(at::zeros({0}), at::zeros({0}))->wait();
    }));
}

TEST_CASE("many gathers may run at once, and the caller may wait for them in any order") {
  for (const Hosts& hosts : kEven)
    CHECK_NOTHROW(run_over_hosts(hosts, [&](CommunicatorPtr world, CommunicatorPtr wrapped) {
      constexpr int64_t kLength = 50, kGathers = 12;
      std::vector<at::Tensor> outputs;
      std::vector<WorkPtr> works;
      for (int64_t i = 0; i < kGathers; ++i) {
        outputs.push_back(at::zeros({world->size() * kLength}, at::kLong));
        const int value = world->rank() + 100 * static_cast<int>(i);
        works.push_back(wrapped->all_gather(outputs.back(), part_of(value, kLength, at::kLong)));
        if (i % 3 == world->rank() % 3) std::this_thread::sleep_for(1ms);
      }
      for (int64_t i = kGathers; i-- > 0;) {
        const int64_t turn = world->rank() % 2 == 0 ? i : kGathers - 1 - i;
        works[turn]->wait();
        EXPECT(works[turn]->poll());
        for (int rank = 0; rank < world->size(); ++rank)
          EXPECT(outputs[turn][rank * kLength].item<int64_t>() == 1000 * (rank + 100 * turn), "gather ", turn);
      }
    }));
}

TEST_CASE("the second step starts even if nobody waits for it") {
  CHECK_NOTHROW(run_over_hosts({0, 0, 1, 1}, [&](CommunicatorPtr world, CommunicatorPtr wrapped) {
    const uint64_t before = flight_ring().next_ticket();
    world->barrier();
    const at::Tensor all = at::zeros({4});
    const WorkPtr work = wrapped->all_gather(all, at::full({1}, 3.0f), {.what = "nobody waits"});
    const auto gathers_done = [&] {
      const auto records = flight_ring().records();
      return std::count_if(records.begin(), records.end(), [&](const FlightRecord& record) {
        return record.ticket >= before && record.op == std::string("all_gather") &&
               record.what == std::string("nobody waits") && record.state == FlightState::done;
      });
    };
    const auto limit = std::chrono::steady_clock::now() + 20s;
    while (gathers_done() < 8 && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(1ms);
    EXPECT(gathers_done() == 8);  // 2 per rank on 4 ranks
    EXPECT(work->poll() && at::equal(all, at::full({4}, 3.0f)));
    world->barrier();
  }));
}

TEST_CASE("if one rank drops a gather and the communicator, the gather completes on the other ranks") {
  CHECK_NOTHROW(run_ranks(4, [](CommunicatorPtr world) {
    CommunicatorPtr wrapped = over_hosts(world, {0, 0, 1, 1});
    const at::Tensor all = at::zeros({4}), mine = at::full({1}, world->rank() + 1.0f);
    WorkPtr work = wrapped->all_gather(all, mine);
    wrapped.reset();
    if (world->rank() == 1) return work.reset();
    std::this_thread::sleep_for(2ms);
    work->wait();
    for (int rank = 0; rank < 4; ++rank) EXPECT(all[rank].item<float>() == static_cast<float>(rank + 1));
  }));
}

TEST_CASE("the communicator suite passes over several hosts") {
  for (const Hosts& hosts : {Hosts{0, 0, 1, 1}, {0, 1, 0, 1}})
    for (const auto& behaviour : testing::comm_behaviours()) {
      INFO(behaviour.name << " with " << hosts.size() << " ranks");
      CHECK_NOTHROW(
          run_over_hosts(hosts, [&](CommunicatorPtr, CommunicatorPtr wrapped) { behaviour.check(*wrapped); }));
    }
}

TEST_CASE("if one rank fails, the gathers of the other ranks end with an error") {
  const auto start = std::chrono::steady_clock::now();
  CHECK_THROWS_WITH(run_over_hosts({0, 0, 1, 1},
                                   [](CommunicatorPtr world, CommunicatorPtr wrapped) {
                                     const at::Tensor all = at::zeros({4}), mine = at::zeros({1});
                                     if (world->rank() == 3) throw DataError("row 7 has no label");
                                     wrapped->all_gather(all, mine)->wait();
                                   }),
                    Catch::Contains("rank 3: row 7 has no label"));
  CHECK(std::chrono::steady_clock::now() - start < 20s);
}

TEST_CASE("outputs whose sizes do not match the inputs fail an assertion") {
  CHECK_THROWS_AS(run_over_hosts({0, 0, 1, 1},
                                 [](CommunicatorPtr, CommunicatorPtr wrapped) {
                                   wrapped->all_gather(at::zeros({5}), at::zeros({1}));
                                 }),
                  InvariantError);
}

}  // namespace
}  // namespace shardline::hierarchical_gather_test
