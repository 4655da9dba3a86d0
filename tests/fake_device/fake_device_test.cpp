#include "tests/fake_device/fake_device.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/autograd/autograd.h>

#include <thread>

#include "core/device/accelerator.h"
#include "core/memory/copy_streams.h"

#include "tests/catch.h"

namespace shardline::fake_device_test {
namespace {

using Catch::Contains;

at::TensorOptions on(int index = 0) {
  return at::TensorOptions(fake::device(index));
}

c10::Stream new_stream(int index = 0) {
  return c10::impl::VirtualGuardImpl(at::kPrivateUse1).getNewStream(fake::device(index));
}

void wait_for_all_streams() {
  c10::impl::VirtualGuardImpl(at::kPrivateUse1).synchronizeDevice(0);
}

// The one violation of `run`; "" for none.
template <class Run>
std::string fault_of(const Run& run) {
  fake::take_faults();
  run();
  const auto faults = fake::take_faults();
  REQUIRE(faults.size() <= 1);
  return faults.empty() ? "" : faults[0];
}

at::Tensor pinned(double value) {
  return pinned_tensor({8}, at::kFloat).fill_(value);
}

}  // namespace

TEST_CASE("operators give the same results on the device as on the CPU") {
  const auto x = at::randn({3, 4, 8, 16}), w = at::randn({16}), b = at::randn({16});
  const auto compute = [](const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
    const auto leaf = input.detach().requires_grad_(true);
    const auto normed = std::get<0>(at::native_layer_norm(leaf, {16}, weight, bias, 1e-5));
    const auto mixed = at::scaled_dot_product_attention(normed, normed, normed, {}, 0.0, true);
    const auto y = at::matmul(mixed.transpose(2, 3), normed).mul(2).add_(1).narrow(2, 3, 5).softmax(3);
    const auto z = at::cat({y, y.flip(0)}, 1) + at::arange(16, y.options());
    torch::autograd::backward({z.square().logsumexp({1, 2, 3}).sum()});
    return std::pair(z.detach(), leaf.grad());
  };
  const auto [z, dx] = compute(x, w, b);
  const auto [device_z, device_dx] = compute(x.to(fake::device()), w.to(fake::device()), b.to(fake::device()));
  CHECK(device_z.device() == fake::device());
  CHECK(at::equal(device_z.cpu(), z));
  CHECK(at::equal(device_dx.cpu(), dx));
  CHECK(fake::take_faults().empty());
  CHECK_THROWS_WITH(device_z + z, Contains("expected all tensors on one device"));
  CHECK_THROWS_WITH(at::add(device_z, at::ones({16}, on(1))), Contains("has tensors of devices 0 and 1"));
  CHECK_THAT(fake::take_faults().at(0), Contains("a tensor is made on device 1, but device 0 is"));
}

TEST_CASE("launches, bytes and waits are counted, waits by reason") {
  const auto x = at::ones({16}, on());
  fake::take_counts();
  const auto y = x + x;
  x.mul_(y);
  CHECK(on_host(y, "to look at it")[0].item<float>() == 2);
  y[0].item<float>();
  wait_for_device(fake::device(), "the end");
  const auto counts = fake::take_counts();
  CHECK(counts.launches ==
        std::map<std::string, int64_t>{
            {"aten::add.Tensor", 1}, {"aten::mul_.Tensor", 1}, {"copy to the host", 1}, {"read a number", 1}});
  CHECK(counts.launched() == 4);
  CHECK(counts.bytes == 64 * (3 + 3 + 1) + 4);
  CHECK(counts.waits == std::map<std::string, int64_t>{{"to look at it", 1}, {"", 1}, {"the end", 1}});
}

TEST_CASE("new device memory contains NaN") {
  CHECK(at::empty({4}, on()).isnan().all().item<bool>());
}

TEST_CASE("work on a device that is not the current one is detected") {
  at::Tensor x;
  {
    const c10::DeviceGuard guard(fake::device(2));
    CHECK(fault_of([&] { x = at::ones({4}, on(2)); }).empty());
  }
  CHECK_THAT(fault_of([&] { x.add_(1); }), Contains("runs on device 2, but device 0 is the thread's current one"));
}

TEST_CASE("a stream that does not wait for another one is detected") {
  const auto stream = new_stream();
  const auto x = at::ones({8}, on()), y = at::zeros({8}, on());
  wait_for_all_streams();
  const auto copy_there = [&](bool waits) {
    x.add_(1);
    if (waits) stream_waits_for(stream, c10::impl::VirtualGuardImpl(at::kPrivateUse1).getStream(fake::device()));
    const c10::StreamGuard guard(stream);
    y.copy_(x);
  };
  CHECK(fault_of([&] { copy_there(true); }).empty());
  wait_for_all_streams();
  CHECK_THAT(fault_of([&] { copy_there(false); }),
             Contains("copy on stream") && Contains("reads what aten::add_.Tensor on stream 0 of device 0 writes"));
  CHECK_THAT(fault_of([&] { y.add_(1); }), Contains("writes what copy on stream") && Contains("does not wait for it"));
  wait_for_all_streams();
  // Different parts of a tensor do not conflict.
  CHECK(fault_of([&] {
          x.narrow(0, 0, 4).add_(1);
          const c10::StreamGuard guard(stream);
          x.narrow(0, 4, 4).add_(1);
        }).empty());
  CHECK_THAT(fault_of([&] { x.narrow(0, 3, 2).add_(1); }), Contains("aten::add_.Tensor"));
  wait_for_all_streams();
}

TEST_CASE("memory that is new on another stream may still have its earlier owner") {
  const auto stream = new_stream();
  wait_for_all_streams();
  at::ones({8}, on()).add_(1);
  const auto x = at::empty({8}, on());  // possibly at the address of the freed tensor
  const auto fill_there = [&] {
    const c10::StreamGuard guard(stream);
    x.fill_(1);
  };
  CHECK_THAT(fault_of(fill_there), Contains("aten::fill_.Scalar on stream") && Contains("earlier owner on stream 0"));
  const auto y = at::empty({8}, on());
  stream_waits_for(stream, c10::impl::VirtualGuardImpl(at::kPrivateUse1).getStream(fake::device()));
  CHECK(fault_of([&] {
          const c10::StreamGuard guard(stream);
          y.fill_(1);
        }).empty());
  wait_for_all_streams();
}

TEST_CASE("memory that another stream may still use must not be freed") {
  const auto stream = new_stream();
  const auto use = [&](bool records, bool waits) {
    auto x = at::ones({8}, on());
    const auto current = c10::impl::VirtualGuardImpl(at::kPrivateUse1).getStream(fake::device());
    stream_waits_for(stream, current);
    {
      const c10::StreamGuard guard(stream);
      x.add_(1);
    }
    if (records) x.record_stream(stream);
    if (waits) stream_waits_for(current, stream);
  };
  CHECK(fault_of([&] { use(true, false); }).empty());
  CHECK(fault_of([&] { use(false, true); }).empty());
  CHECK_THAT(fault_of([&] { use(false, false); }), Contains("is freed while aten::add_.Tensor on stream"));
}

TEST_CASE("the host must wait for a copy before it reads or writes the memory") {
  const auto x = at::full({8}, 3, on());
  const auto host = pinned(1);
  CHECK(fault_of([&] {
          host.copy_(x, /*non_blocking=*/true);
          CHECK(host.isnan().all().item<bool>());
          c10::Event done(at::kPrivateUse1);
          done.record(c10::impl::VirtualGuardImpl(at::kPrivateUse1).getStream(fake::device()));
          CHECK_FALSE(done.query());
          CHECK(done.query());
          CHECK(host.isnan().all().item<bool>());  // the host has not stated that it waits for this
          const HostWait polls("the copy");
          CHECK(done.query());
          CHECK(at::equal(host, at::full({8}, 3.f)));
        }).empty());
  CHECK_THAT(fault_of([&] {
               host.copy_(x, true);
               host.zero_();
               wait_for_device(fake::device(), "the copy");
             }),
             Contains("was written while a copy"));
  const auto y = at::zeros({8}, on());
  CHECK(fault_of([&] {
          host.fill_(5);
          y.copy_(host, true);
          wait_for_device(fake::device(), "the copy");
          host.fill_(6);
        }).empty());
  CHECK_THAT(fault_of([&] {
               y.copy_(host, true);
               host.fill_(7);
             }),
             Contains("was changed while a copy"));
  // A copy that follows another one in a stream reads what that one wrote.
  CHECK(fault_of([&] {
          host.copy_(x, true);
          y.copy_(host, true);
          CHECK(at::equal(on_host(y, "to compare"), at::full({8}, 3.f)));
        }).empty());
  CHECK(at::equal(host, at::full({8}, 3.f)));
}

TEST_CASE("on_device copies without a wait, from memory that may be changed immediately afterwards") {
  auto host = at::arange(8);
  fake::take_counts();
  at::Tensor there;
  CHECK(fault_of([&] {
          there = on_device(host, fake::device());
          host.zero_();
        }).empty());
  CHECK(fake::take_counts().waits.empty());
  CHECK(at::equal(on_host(there, "to compare"), at::arange(8)));
}

TEST_CASE("a thread knows the completed work of the threads that started it or that it joined") {
  const auto x = at::ones({8}, on());
  CHECK(fault_of([&] {
          wait_for_device(fake::device(), "x");
          std::thread([&] {
            const auto stream = new_stream();
            const c10::StreamGuard guard(stream);
            x.add_(1);
            c10::impl::VirtualGuardImpl(at::kPrivateUse1).synchronizeStream(stream);
          }).join();
          fake::joined_threads();
          x.add_(1);
        }).empty());
  CHECK(x[0].item<float>() == 3);
}

TEST_CASE("memory in use is counted as in torch") {
  const auto before = device_memory(fake::device(3));
  {
    const c10::DeviceGuard guard(fake::device(3));
    at::empty({1000}, on(3));
  }
  CHECK(device_memory(fake::device(3)).peak_allocated == before.peak_allocated + 4000);
  CHECK(device_memory_size(fake::device(3)) > 1 << 30);
  CHECK(accelerator_count() == 4);
  CHECK(accelerator(2) == fake::device(2));
}

TEST_CASE("a violation is reported when it is detected") {
  static std::vector<std::string> reported;
  reported.clear();
  fake::take_faults();
  fake::call_on_fault([](const std::string& fault) { reported.push_back(fault); });
  at::ones({8}, on(1));  // device 1 is not current
  fake::call_on_fault(nullptr);
  CHECK_FALSE(reported.empty());
  CHECK(reported == fake::take_faults());
}

}  // namespace shardline::fake_device_test
