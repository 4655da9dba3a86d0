// Training runs of many ranks on fake devices give the same bits as on CPUs with the same layout and operators, without
// races, leaks or misuse of NCCL.
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "core/comm/communicator_base.h"
#include "core/comm/forwarding_communicator.h"
#include "core/error.h"
#include "engine/plan/plan.h"
#include "engine/train/trainer.h"
#include "partitioner/memory/device_bytes.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/products/products.h"
#include "tests/fake_nccl/device_ranks.h"
#include "tests/parity/half.h"
#include "tests/parity/run.h"
#include "tests/parity/wrapped_layer.h"

#include "tests/catch.h"

namespace shardline::device_training_test {
namespace {

using Catch::Contains;
using parity::ChooseDevice;
using parity::Outcome;
using parity::Point;
using Texts = std::vector<std::string>;

// Makes CPUs compute with the operators that the device has.
struct SameOperators {
  SameOperators() {
    use_kernels(KernelLibrary::aten);
    use_products(ProductLibrary::aten);
  }
  ~SameOperators() {
    use_kernels(KernelLibrary::automatic);
    use_products(ProductLibrary::automatic);
  }
};

c10::impl::VirtualGuardImpl devices() {
  return c10::impl::VirtualGuardImpl(at::kPrivateUse1);
}

parity::RankDevice device_of_its_own(const CommunicatorPtr& world) {
  const at::Device device = fake::device(world->rank());
  devices().setDevice(device);
  return {device, make_nccl_world(world, world->rank(), fake::nccl())};
}

std::vector<Point> points() {
  return {{.d = 2, .p = 2, .t = 2, .optimize = "memory", .dtype = "float32", .microbatches = 2, .dropout = true},
          {.d = 2, .p = 2, .t = 2, .pipeline = "zb_h1", .dtype = "float32", .microbatches = 2, .sharding = "ZeRO-2"},
          {.p = 2, .pipeline = "simple", .dtype = "float32", .accumulation = 3},
          {.p = 3, .t = 2, .pipeline = "zbv", .dtype = "float32", .microbatches = 4, .dropout = true},
          {.d = 4, .t = 2, .optimize = "memory", .dtype = "float32", .ignored = true, .sharding = "MiCS 2"},
          {.d = 3, .dtype = "float32", .accumulation = 2, .checkpointing = "each", .sharding = "ZeRO-3"},
          {.d = 2, .p = 2, .t = 2, .optimize = "memory", .dtype = "bf16", .microbatches = 2, .dropout = true},
          {.p = 2, .t = 3, .pipeline = "zb_h1", .dtype = "bf16", .microbatches = 3},
          {.d = 4, .dtype = "bf16", .checkpointing = "each", .sharding = "ZeRO-3"},
          {.d = 2,
           .p = 2,
           .t = 2,
           .pipeline = "simple",
           .dtype = "fp16 overflowing",
           .microbatches = 2,
           .offload = "all",
           .states_on_host = true,
           .sharding = "ZeRO-2"}};
}

Outcome checked_run(const Point& point, const ChooseDevice& choose) {
  fake::take_faults();
  fake::take_nccl_faults();
  std::atomic<int64_t> skipped = 0;
  const auto after_step = [&](RankTrainer& trainer, int) {
    if (const auto state = trainer.loss_scaler_state()) skipped = state->skipped;
  };
  const Outcome outcome = run_point(point, {.after_step = after_step}, choose);
  CHECK((skipped > 0) == (point.dtype == "fp16 overflowing"));
  CHECK(fake::take_faults() == Texts{});
  CHECK(fake::take_nccl_faults() == Texts{});
  CHECK(fake::live_nccl_communicators() == 0);
  return outcome;
}

TEST_CASE("training over NCCL and on a shared device has the bits of training on CPUs") {
  const SameOperators same;
  const testing::Limits limits(std::chrono::seconds(20), std::chrono::seconds(20));
  for (const Point& small : points()) {
    const Point point = with_few_steps(with_batch(small));
    DYNAMIC_SECTION(point.name()) {
      const Outcome cpus = run_point(point);
      for (const auto& choose : {ChooseDevice(device_of_its_own), parity::shared_by_ranks(fake::device())}) {
        const Outcome on_devices = checked_run(point, choose);
        CHECK(on_devices.losses == cpus.losses);
        CHECK(bit_equal(on_devices, cpus));
      }
    }
  }
}

TEST_CASE("half precision stays close enough to fp32 with sums that are rounded at each hop, as by NCCL") {
  const SameOperators same;
  const testing::Limits limits(std::chrono::seconds(20), std::chrono::seconds(20));
  for (const char* optimize : {"speed", "memory"}) {
    const Point small{.t = 4, .optimize = optimize, .dtype = "bf16"}, point = with_few_steps(with_batch(small));
    CAPTURE(point.name());
    Point in_fp32 = point;
    in_fp32.dtype = "float32";
    fake::round_at_each_hop(true);
    const Outcome rounded = checked_run(point, device_of_its_own);
    fake::round_at_each_hop(false);
    CHECK(!bit_equal(rounded, checked_run(point, device_of_its_own)));
    const Outcome& exact = reference(in_fp32);
    CHECK(half_distance(rounded, exact).exceeds(half_distance(reference(point), exact)) == "");
  }
}

TEST_CASE("a rank has as many communicators as its plan counts") {
  const testing::Limits limits(std::chrono::seconds(20), std::chrono::seconds(20));
  std::vector<Point> different = points();
  different.push_back({.p = 3, .pipeline = "interleaved_1f1b v2", .microbatches = 3, .tied = false});
  for (const Point& small : different) {
    Point point = with_batch(small);
    point.steps = 1;
    CAPTURE(point.name());
    std::mutex mutex;
    std::optional<Plan> plan;
    std::vector<int> counted(point.world()), planned;
    const auto keep = [&](Plan& used) {
      const std::scoped_lock lock(mutex);
      plan = used;
      plan->layout.on_accelerators = true;
    };
    const auto count = [&](RankTrainer&, int step) {
      if (step == 1) counted[current_rank()] = fake::live_nccl_groups();
    };
    run_point(point, {.plan = keep, .after_step = count}, device_of_its_own);
    const PlacedLayers placed = placed_layers(*plan);
    for (int rank = 0; rank < point.world(); ++rank) {
      const DeviceBytes bytes = device_bytes(placed, plan->layout.mesh().at(rank).p);
      planned.push_back((bytes.communicators + bytes.later) / kCommunicatorBytes);
      CHECK(least_device_bytes(plan->layout).total() <= bytes.total());
    }
    CHECK(counted == planned);
  }
  fake::take_faults();
}

// A receive posted ahead on the first stage is for gradients, which depend on what the stage does next.
TEST_CASE("in the first step, no device waits for a receive that was posted ahead") {
  const SameOperators same;
  const testing::Limits limits(std::chrono::seconds(20), std::chrono::seconds(20));
  const Point point{.p = 2, .dtype = "float32", .microbatches = 2, .steps = 1};
  std::vector<size_t> waiting;  // when the first block of a microbatch runs; the runs follow one after the other
  const auto look = [&](Layer& inner, const LayerBuild&, const Border& input, MicrobatchContext& context) {
    waiting.push_back(fake::outside_of(fake::device()).size());
    return inner.forward(input, context);
  };
  const auto wrap_first_block = [&](ModelSpec& spec, const Point&) { parity::wrap(spec.layers.at(1), look); };
  run_point(point, {.spec = wrap_first_block}, device_of_its_own);
  REQUIRE(waiting.size() == 4);  // two microbatches, whose gradients are also computed by themselves
  CHECK(waiting[0] == 0);
  CHECK(waiting[2] == 1);
  CHECK(fake::take_faults() == Texts{});
}

TEST_CASE("no receive is posted ahead where offloading may page-lock memory, because microbatches have other sizes") {
  const SameOperators same;
  const testing::Limits limits(std::chrono::seconds(20), std::chrono::seconds(20));
  const Point point{.p = 2,
                    .dtype = "float32",
                    .microbatches = 2,
                    .offload = "all",
                    .model = "bert",
                    .task = "sequence-classification",
                    .steps = 3};
  std::vector<size_t> waiting, rows;  // when the first block of a microbatch runs, and its rows
  const auto look = [&](Layer& inner, const LayerBuild&, const Border& input, MicrobatchContext& context) {
    waiting.push_back(fake::outside_of(fake::device()).size());
    rows.push_back(context.batch->tokens());
    return inner.forward(input, context);
  };
  const auto wrap_first_block = [&](ModelSpec& spec, const Point&) { parity::wrap(spec.layers.at(1), look); };
  run_point(point, {.spec = wrap_first_block}, device_of_its_own);
  REQUIRE(rows.size() ==
          8);  // two microbatches in three steps; the gradients of the first are also computed by themselves
  int same_sizes = 0;
  for (size_t run = 2; run < rows.size(); run += 2) {
    const bool is_same = rows[run] == rows[run - 2] && rows[run + 1] == rows[run - 1];
    same_sizes += is_same;
    CHECK(waiting[run] == (is_same ? 1 : 0));
  }
  CHECK(same_sizes == 1);
  CHECK(fake::take_faults() == Texts{});
}

// Starts operations and forgets to wait for those of one kind.
class Forgetful : public ForwardingCommunicator {
 public:
  Forgetful(CommunicatorPtr inner, CommOp forgotten)
      : ForwardingCommunicator(std::move(inner)), forgotten_(forgotten) {}

  WorkPtr all_reduce(const at::Tensor& tensor, const CommOptions& options) override {
    return kept(CommOp::all_reduce, inner().all_reduce(tensor, options));
  }
  WorkPtr all_gather(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) override {
    return kept(CommOp::all_gather, inner().all_gather(output, input, options));
  }
  WorkPtr recv(const at::Tensor& tensor, int peer, const CommOptions& options) override {
    return kept(CommOp::recv, inner().recv(tensor, peer, options));
  }
  CommunicatorPtr split(int color, const std::string& group) override {
    return std::make_shared<Forgetful>(inner().split(color, group), forgotten_);
  }

 private:
  // Makes the wrong stream wait instead of the one that needs to.
  struct NoWait : Work {
    explicit NoWait(WorkPtr work) : inner(std::move(work)) {}
    bool poll() override { return inner->poll(); }
    void await(TimePoint) override {
      const c10::StreamGuard aside(devices().getNewStream(devices().getDevice()));
      inner->wait();
    }
    WorkPtr inner;
  };
  WorkPtr kept(CommOp op, WorkPtr work) const {
    return op == forgotten_ ? std::make_shared<NoWait>(std::move(work)) : std::move(work);
  }

  CommOp forgotten_;
};

TEST_CASE("a missing wait for NCCL is detected, whether for a message, an all-reduce or a gather") {
  const SameOperators same;
  const testing::Limits limits(std::chrono::seconds(10), std::chrono::seconds(10));
  const std::vector<std::pair<CommOp, Point>> cases = {
      {CommOp::recv, {.p = 2, .dtype = "float32", .microbatches = 2, .steps = 1}},
      {CommOp::all_reduce, {.t = 2, .dtype = "float32", .steps = 1}},
      {CommOp::all_gather, {.d = 2, .dtype = "float32", .sharding = "ZeRO-3", .steps = 1}}};
  for (const auto& [forgotten, small] : cases) {
    CAPTURE(small.name());
    const auto choose = [op = forgotten](const CommunicatorPtr& world) {
      const parity::RankDevice sound = device_of_its_own(world);
      return parity::RankDevice{sound.device, std::make_shared<Forgetful>(sound.world, op)};
    };
    fake::take_faults();
    try {
      run_point(with_batch(small), {}, choose);
    } catch (const Error&) {  // what was read too early may have any value
    }
    const Texts faults = fake::take_faults();
    const auto tells = [](const std::string& text) { return text.find("does not wait for it") != std::string::npos; };
    CHECK(std::any_of(faults.begin(), faults.end(), tells));
    fake::take_nccl_faults();
  }
}

}  // namespace
}  // namespace shardline::device_training_test
