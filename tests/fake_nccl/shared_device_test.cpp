// Ranks that are threads and share one device, each with a stream of its own.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <thread>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "tests/core/comm/communicator_suite.h"
#include "tests/fake_nccl/device_ranks.h"
#include "tests/fake_nccl/staging_communicator.h"

#include "tests/catch.h"

namespace shardline::shared_device_test {
namespace {

using namespace std::chrono_literals;
using Catch::Contains;
using Texts = std::vector<std::string>;

void run_on_streams(int ranks, const std::function<void(CommunicatorPtr world)>& fn) {
  run_ranks(ranks, [&](CommunicatorPtr world) {
    const c10::StreamGuard own(c10::impl::VirtualGuardImpl(at::kPrivateUse1).getStreamFromGlobalPool(fake::device()));
    fn(world);
  });
}

at::Tensor filled(int64_t elements, double value) {
  return at::full({elements}, value, at::TensorOptions(fake::device()));
}

TEST_CASE("shared device: the communicator suite passes, with the order of addition of CPUs") {
  for (const int ranks : {1, 3})
    for (const auto& behaviour : testing::comm_behaviours()) {
      CAPTURE(ranks, behaviour.name);
      CHECK_NOTHROW(run_on_streams(ranks, [&](CommunicatorPtr world) {
        testing::StagingCommunicator staged(world, fake::device());
        behaviour.check(staged);
      }));
      CHECK(fake::take_faults() == Texts{});
    }
}

TEST_CASE("shared device: a result for which nobody waits is detected") {
  run_on_streams(2, [](CommunicatorPtr world) {
    const at::Tensor sum = filled(3, 1), go = at::zeros({1});
    if (world->rank() == 1) world->recv(go, 0)->wait();  // comes last, and moves the data
    const WorkPtr work = world->all_reduce(sum);
    if (world->rank() == 0) world->send(go, 1)->wait();
    world->barrier();
    if (world->rank() == 0) sum.add_(1);
    work->wait();
    on_host(sum, "a test looks");
  });
  const Texts faults = fake::take_faults();
  REQUIRE(!faults.empty());
  CHECK_THAT(faults[0], Contains("aten::add_") && Contains("does not wait for it"));
}

TEST_CASE("shared device: tensors that the caller drops live as long as their operation") {
  run_on_streams(2, [](CommunicatorPtr world) {
    for (int i = 0; i < 3; ++i) {
      world->send(filled(100, i), 1 - world->rank());
      const at::Tensor message = filled(100, -1);
      world->recv(message, 1 - world->rank())->wait();
      EXPECT(on_host(message, "a test looks")[0].item<float>() == i);
      world->all_reduce(filled(100, i));
    }
    world->barrier();
  });
  CHECK(fake::take_faults() == Texts{});
}

TEST_CASE("shared device: a message between a device and a CPU is refused") {
  CHECK_THROWS_WITH(run_on_streams(2,
                                   [](CommunicatorPtr world) {
                                     const at::Tensor tensor = world->rank() == 0 ? filled(3, 1) : at::zeros({3});
                                     world->all_reduce(tensor)->wait();
                                   }),
                    Contains("disagree") && Contains(" on "));
}

// Returns each rank's error when the device has no memory left for `job`, which gets one of its tensors.
Texts failures_without_memory(const std::function<void(Communicator& world, const at::Tensor& tensor)>& job) {
  Texts texts(2);
  const auto run = [&] {
    run_on_streams(2, [&](CommunicatorPtr world) {
      const at::Tensor tensor = filled(1000, 1);
      world->barrier();
      fake::set_device_bytes(device_memory(fake::device()).allocated);
      world->barrier();
      try {
        job(*world, tensor);
      } catch (const std::exception& error) {
        texts[world->rank()] = error.what();
        throw;
      }
    });
  };
  CHECK_THROWS_WITH(run(), Contains("out of memory"));
  fake::set_device_bytes(fake::kDeviceBytes);
  return texts;
}

TEST_CASE("shared device: a rank without the memory for a sum ends the others") {
  const Texts texts =
      failures_without_memory([](Communicator& world, const at::Tensor& tensor) { world.all_reduce(tensor)->wait(); });
  for (const auto& text : texts) CHECK_THAT(text, Contains("Fake device 0 out of memory"));
  const int later = texts[0].find("aborted") == std::string::npos ? 0 : 1;  // the rank that adds
  CHECK_THAT(texts[1 - later], Contains(cat("rank ", later, " aborted")));
}

TEST_CASE("shared device: a sender without the memory for a copy ends the receiver that comes later") {
  std::atomic<bool> failed = false;
  const Texts texts = failures_without_memory([&](Communicator& world, const at::Tensor& tensor) {
    if (world.rank() == 0) {
      while (!failed) std::this_thread::yield();
      world.recv(tensor, 1)->wait();
    } else {
      try {
        world.send(tensor, 0);
      } catch (...) {
        failed = true;
        std::this_thread::sleep_for(100ms);
        throw;
      }
    }
  });
  CHECK_THAT(texts[0], Contains("recv number 0") && Contains("rank 1 aborted: Fake device 0 out of memory"));
  CHECK_THAT(texts[1], Contains("Fake device 0 out of memory"));
}

TEST_CASE("shared device: the time that a stream waits is measured") {
  std::atomic<double> early = 0, late = 0;
  run_on_streams(2, [&](CommunicatorPtr world) {
    const double before = waited_seconds();
    if (world->rank() == 1) std::this_thread::sleep_for(200ms);
    const at::Tensor sum = filled(1, 1);
    world->all_reduce(sum)->wait();
    on_host(sum, "a test looks");
    (world->rank() == 0 ? early : late) = waited_seconds() - before;
  });
  CHECK(early >= 0.15);
  CHECK(late < 0.1);
}

}  // namespace
}  // namespace shardline::shared_device_test
