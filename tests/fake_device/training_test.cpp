// Training runs on the fake device give the numbers of CPUs with the same operators, without races and without waits
// that name no reason.
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <mutex>

#include "core/comm/threads_communicator.h"
#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/memory/copy_streams.h"
#include "engine/train/trainer.h"
#include "pipeline/schedule/messages_held.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/products/products.h"
#include "tests/fake_device/fake_device.h"
#include "tests/parity/matrix.h"
#include "tests/parity/run.h"
#include "tests/parity/wrapped_layer.h"

#include "tests/catch.h"

namespace shardline::training_test {
namespace {

using Catch::Contains;
using parity::Outcome;
using parity::Point;
using parity::Tampering;
using Faults = std::vector<std::string>;

const c10::impl::VirtualGuardImpl& device_guard() {
  static const c10::impl::VirtualGuardImpl guard(at::kPrivateUse1);
  return guard;
}

// Makes CPUs compute with the operators that the device has.
class SameOperators {
 public:
  SameOperators() {
    use_kernels(KernelLibrary::aten);
    use_products(ProductLibrary::aten);
  }
  ~SameOperators() {
    use_kernels(KernelLibrary::automatic);
    use_products(ProductLibrary::automatic);
  }
};

// Runs all ranks on device 0, each with a stream of its own.
Outcome on_fake_device(const Point& point, const Tampering& tampering = {}) {
  return run_point(point, tampering, parity::shared_by_ranks(fake::device()));
}

void check_equal(const Point& long_point) {
  const Point point = with_few_steps(long_point);
  CAPTURE(point.name());
  const SameOperators same;
  fake::take_faults();
  fake::take_counts();
  const Outcome cpu = run_point(point), device = on_fake_device(point);
  CHECK(fake::take_faults() == Faults());
  CHECK(device.losses == cpu.losses);
  CHECK(device.norm == cpu.norm);
  CHECK(bit_equal(device, cpu));
}

int64_t copies_to_host(Point point) {
  point.steps = 1;
  fake::take_counts();
  on_fake_device(point);
  return fake::take_counts().launches["copy to the host"];
}

Tampering around_block(const parity::Around& around) {
  return {.spec = [=](ModelSpec& spec, const Point&) { parity::wrap(spec.layers.at(2), around); }};
}

// Returns the faults of a short run with a mistake.
Faults faults_with(const parity::Around& around) {
  fake::take_faults();
  on_fake_device({.dtype = "float32", .microbatches = 2, .steps = 1}, around_block(around));
  return fake::take_faults();
}

}  // namespace

// A microbatch has at most 256 tokens, because on CPUs the head cuts more tokens into blocks, which it adds one by one.
TEST_CASE("one rank on the device has the bits of one on a CPU") {
  const Point base{.dtype = "float32", .microbatches = 3};
  Point dropout = base;
  dropout.dropout = true, dropout.microbatches = 1, dropout.shape = "2 tokens";
  Point split = base;
  split.model = "gptj", split.pipeline = "zb_h1", split.checkpointing = "selective", split.tied = false;
  split.ignored = true;
  Point recomputed = dropout;
  // On one stage, only `simple` leaves time to move activations to the host.
  recomputed.checkpointing = "each", recomputed.offload = "checkpointed";
  recomputed.pipeline = "simple", recomputed.microbatches = 2;
  Point away = base;
  away.offload = "all", away.pipeline = "simple", away.checkpointing = "group_2", away.short_batch = true;
  for (const Point& moved : {recomputed, away}) {
    Point stays = moved;
    stays.offload = "off";
    CHECK(copies_to_host(moved) > copies_to_host(stays));
  }
  Point states = base;
  states.states_on_host = true, states.optim = "sgd";
  for (const Point& point : {dropout, split, recomputed, away, states}) check_equal(point);
  for (const char* dtype : {"bf16", "fp16", "bf16 fp32 residuals"}) {
    Point half = base;
    half.dtype = dtype;
    half.states_on_host = half.dtype == "bf16";
    check_equal(half);
  }
}

TEST_CASE("ranks that share a device have the bits of ranks on CPUs") {
  for (const Point& point : parity::device_points()) check_equal(point);
}

TEST_CASE("a step waits for its device only where it must, and states why") {
  const auto waits_of = [](Point point) {
    std::map<std::string, int64_t> waits;
    fake::take_faults();
    on_fake_device(point, {.after_step = [&](RankTrainer&, int step) {
                     const auto counts = fake::take_counts();
                     if (step == 3) waits = counts.waits;
                   }});
    CHECK(fake::take_faults() == Faults());
    return waits;
  };
  using Waits = std::map<std::string, int64_t>;
  const int64_t computing = 3 * 3 - kInstructionsAhead;  // waits of a host that is as far ahead as allowed
  const Waits few = {{"gradient norm", 1},
                     {"loss of a microbatch", 3},
                     {"the device's clock", 1},
                     {"an earlier instruction", computing}};
  Point point{.dtype = "float32",
              .microbatches = 3,
              .dropout = true,
              .checkpointing = "selective",
              .shape = "2 tokens",
              .steps = 3};
  CHECK(waits_of(point) == few);
  Point split = point;  // on two ranks, each with rows of the head and all words
  split.t = 2, split.optimize = "memory", split.units = "whole";
  on_fake_device(split);
  const int64_t passes = split.steps + 1;  // the gradients of step 1 are also computed by themselves
  CHECK(fake::take_counts().waits.at("loss of a microbatch") == split.t * split.microbatches * passes);
  point.model = "gptj", point.pipeline = "zb_h1";
  CHECK(waits_of(point) == few);
  point.offload = "all", point.pipeline = "simple";
  CHECK(waits_of(point) == few);
  point.states_on_host = true;
  auto with_states = waits_of(point);
  CHECK(with_states.erase("gradients for an update on the host") == 1);
  CHECK(with_states == few);
}

TEST_CASE("a step has the expected number of launches and bytes moved") {
  fake::Counts counts;
  on_fake_device({.dtype = "float32", .steps = 3}, {.after_step = [&](RankTrainer&, int step) {
                   const auto last = fake::take_counts();
                   if (step == 3) counts = last;
                 }});
  CAPTURE(counts.launches);
  // 7 layers, and 18 segments of parameters with an update each.
  CHECK(counts.launched() <= 900);
  CHECK(counts.bytes <= 140'000'000);  // attention's scores are in memory here
}

TEST_CASE("injected races in a layer are detected") {
  const auto stream = device_guard().getNewStream(fake::device());
  const auto here = [] { return device_guard().getStream(fake::device()); };
  CHECK(faults_with([](Layer& inner, const LayerBuild&, const Border& input, MicrobatchContext& context) {
          return inner.forward(input, context);
        }) == Faults());
  SECTION("a wrong stream") {
    const auto faults = faults_with([&](Layer& inner, const LayerBuild&, const Border& input, auto& context) {
      const c10::StreamGuard guard(stream);
      return inner.forward(input, context);
    });
    REQUIRE_FALSE(faults.empty());
    CHECK_THAT(faults[0], Contains("does not wait for it"));
  }
  SECTION("a wait that is dropped") {
    const auto faults = faults_with([&](Layer& inner, const LayerBuild&, const Border& input, auto& context) {
      stream_waits_for(stream, here());
      const c10::StreamGuard guard(stream);
      Border output = inner.forward(input, context);
      for (const auto& tensor : input) tensor.record_stream(stream);
      return output;  // nobody waits for the stream
    });
    REQUIRE_FALSE(faults.empty());
    CHECK_THAT(faults[0], Contains("does not wait for it"));
  }
  SECTION("memory that is freed early") {
    const auto faults = faults_with([&](Layer& inner, const LayerBuild&, const Border& input, auto& context) {
      stream_waits_for(stream, here());
      {
        const c10::StreamGuard guard(stream);
        input[0].detach().sum();  // as a copy to the host would
      }
      return inner.forward(input, context);
    });
    REQUIRE_FALSE(faults.empty());
    CHECK_THAT(faults[0], Contains("is freed while aten::sum"));
  }
  SECTION("an early read on the host") {
    bool read = false;
    faults_with([&](Layer& inner, const LayerBuild&, const Border& input, auto& context) {
      Border output = inner.forward(input, context);
      const at::Tensor host = pinned_tensor(output[0].sizes(), output[0].scalar_type());
      host.copy_(output[0].detach(), /*non_blocking=*/true);
      read = read || !host.isnan().all().item<bool>();
      return output;
    });
    CHECK_FALSE(read);
  }
  SECTION("a missing guard") {
    fake::take_faults();
    try {
      run_ranks(1, [](const CommunicatorPtr& world) {
        parity::run_point_on({.dtype = "float32", .steps = 1}, world, {}, {fake::device(1)});
      });
    } catch (const std::exception&) {  // the number of steps does not matter
    }
    const auto faults = fake::take_faults();
    REQUIRE_FALSE(faults.empty());
    CHECK_THAT(faults[0], Contains("device 1, but device 0 is the thread's current one"));
  }
}

}  // namespace shardline::training_test
