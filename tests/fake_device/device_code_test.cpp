// Parts of the engine that have special code for accelerators.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <limits>
#include <thread>

#include "core/comm/clock.h"
#include "core/comm/local_communicator.h"
#include "core/device/accelerator.h"
#include "core/device/device_marks.h"
#include "core/device/stream_wait.h"
#include "core/model/backward.h"
#include "core/numbers/philox.h"
#include "optim/flat/host_link.h"
#include "optim/update/device_exact_sum.h"
#include "tensor_parallel/kernels/aten/aten_random.h"
#include "tensor_parallel/ops/embedding.h"
#include "tests/fake_device/fake_device.h"

#include "tests/catch.h"

namespace shardline::device_code_test {
namespace {

using Faults = std::vector<std::string>;

c10::Stream current_stream() {
  return c10::impl::VirtualGuardImpl(at::kPrivateUse1).getStream(fake::device());
}

}  // namespace

TEST_CASE("the backward pass of tensors on a device runs on the calling thread") {
  std::thread::id ran_on;
  const auto x = at::ones({4}, fake::device()).requires_grad_(true);
  const auto y = with_backward(x.detach() * 2, {x}, {}, "Doubled", [&](const at::Tensor& dy, const SavedTensors&) {
    ran_on = std::this_thread::get_id();
    return std::vector<at::Tensor>{dy * 2};
  });
  backward_on_this_thread({torch::autograd::impl::gradient_edge(y)}, {at::ones({4}, fake::device())});
  CHECK(ran_on == std::this_thread::get_id());
  CHECK(at::equal(x.grad().cpu(), at::full({4}, 2.f)));
  CHECK(fake::take_faults() == Faults());
}

TEST_CASE("masks made on a device equal those of the CPU") {
  for (const double keep : {0.0, 0.3, 0.9, 1.0})
    for (const int64_t first : {int64_t{0}, int64_t{5}, (int64_t{1} << 40) + 3}) {
      CAPTURE(keep, first);
      const RandomStream stream{.seed = 0x123456789abcdef0, .op = 65000, .step = 4000000000u};
      const at::Tensor samples = at::tensor({int64_t{7}, int64_t{4294967295}}, at::kLong).unsqueeze(1);
      const at::Tensor element = at::arange(first, first + 301);
      const at::Tensor mask =
          aten::random_keep(stream, samples.to(fake::device()), element.to(fake::device()), keep).cpu();
      for (int64_t i = 0; i < 2; ++i) {
        const at::Tensor expected = at::empty({301}, at::kByte);
        RandomStream own = stream;
        own.sample = static_cast<uint32_t>(samples[i].item<int64_t>());
        random_keep(own, first, 301, keep, expected.mutable_data_ptr<uint8_t>());
        CHECK(at::equal(mask[i].to(at::kByte), expected));
      }
    }
}

TEST_CASE("noise on embeddings made on a device equals that of the CPU") {
  constexpr int64_t kTokens = 97,
                    kHidden = 8190;  // several blocks of rows, and rows that begin inside a block of random words
  const CommunicatorPtr alone = make_local_world();
  Microbatch batch = causal_microbatch(at::zeros({1, kTokens}, at::kLong), {}, at::full({1}, 7, at::kLong));
  batch.ends = {2, 40, kTokens};
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor before = at::randn({kTokens, kHidden}).to(type);
    const auto with_noise_on = [&](at::Device device) {
      const Microbatch there = on_device(batch, device);
      const at::Tensor rows = before.to(device, type, /*non_blocking=*/false, /*copy=*/true);
      add_embedding_noise({alone.get(), false}, {.batch = &there, .seed = 3, .step = 4, .embedding_noise = 5}, 0, rows);
      return rows.cpu();
    };
    const at::Tensor expected = with_noise_on(at::kCPU);
    CHECK_FALSE(at::equal(expected, before));
    CHECK(at::equal(with_noise_on(fake::device()), expected));
  }
  CHECK(fake::take_faults() == Faults());
}

TEST_CASE("an exact sum on a device equals the exact sum on the host") {
  const auto check = [](const at::Tensor& values) {
    ExactSum expected;
    for (int64_t i = 0; i < values.numel(); ++i) expected.add(values[i].item<double>());
    DeviceExactSum sum(fake::device());
    for (const auto& part : values.split(1000)) sum.add(part.to(fake::device()));
    const double found = sum.on_host("to compare").value(), wanted = expected.value();
    CHECK((found == wanted || (std::isnan(found) && std::isnan(wanted))));
  };
  // Numbers with all exponents, including subnormal ones and zero.
  const at::Tensor bits = at::randint(0, int64_t{0x7fe} << 52, {5000}, at::kLong);
  check(bits.view(at::kDouble));
  check(at::randint(0, int64_t{1} << 54, {5000}, at::kLong).view(at::kDouble));
  check(at::randn({3000}, at::kDouble).square());
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  check(at::tensor({1.0, kInfinity, 2.0}, at::kDouble));
  check(at::tensor({1.0, kInfinity, std::nan("")}, at::kDouble));
  check(at::tensor({1.0, std::copysign(std::nan(""), -1.0)}, at::kDouble));  // x86's NaN for infinity - infinity
  check(at::tensor({0.0, -0.0, std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::max()},
                   at::kDouble));
}

TEST_CASE("a tensor may be dropped while it is copied between a device and its host") {
  fake::take_faults();
  const HostLinkPtr link = make_host_link(fake::device());
  const at::Tensor there = link->zeros(100, at::kFloat), back = link->zeros(100, at::kFloat);
  link->to_device(at::empty({100}, at::TensorOptions(fake::device())), there);
  link->to_host(back, at::zeros({100}, at::TensorOptions(fake::device())))->wait();
  CHECK(fake::take_faults() == Faults());
}

TEST_CASE("waits of a stream release their events when they are over") {
  const auto wait_often = [](int times) {
    for (int i = 0; i < times; ++i) {
      StreamWait wait(fake::device());
      c10::Event operation(at::kPrivateUse1);
      operation.record(current_stream());
      wait.end_with(operation);
    }
    return fake::live_events();
  };
  const int few = wait_often(10);
  CHECK(wait_often(100) <= few);
  CHECK(fake::take_faults() == Faults());
}

TEST_CASE("times of events on a device are converted to the host's clock") {
  DeviceMarks marks(fake::device(), steady_seconds);
  for (int round = 0; round < 2; ++round) {
    const double begin = steady_seconds();
    marks.add();
    at::ones({1000}, fake::device());
    marks.add();
    const double end = steady_seconds();
    fake::take_counts();
    const auto times = marks.take();
    CHECK(fake::take_counts().waits == std::map<std::string, int64_t>{{"the device's clock", 1}});
    REQUIRE(times.size() == 2);
    constexpr double kRounding = 1e-4;
    CHECK(times[0] >= begin - kRounding);
    CHECK(times[1] >= times[0]);
    CHECK(times[1] <= end + kRounding);
    CHECK(marks.take().empty());
  }
}

}  // namespace shardline::device_code_test
