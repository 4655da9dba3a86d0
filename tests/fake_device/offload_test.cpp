// Memory of activations that go to the host and come back.
#include "pipeline/activations/offload.h"

#include <ATen/ops/full.h>

#include "core/device/accelerator.h"
#include "tests/fake_device/fake_device.h"

#include "tests/catch.h"

namespace shardline::offload_test {
namespace {

constexpr int64_t kElements = 1000, kBytes = 4 * kElements;

at::Tensor filled(double value) {
  return at::full({kElements}, value, at::TensorOptions(at::kFloat).device(fake::device()));
}

int64_t active_bytes() {
  return device_memory(fake::device()).active;
}

}  // namespace

TEST_CASE("buffers of offloaded tensors are reused in the order of streams, however late the device is") {
  fake::take_faults();
  filled(0);  // reuses what earlier tests have freed
  const int64_t before = active_bytes();
  const auto space = offload_to_host(fake::device());
  std::vector<std::unique_ptr<Away>> away;
  for (int i = 0; i < 5; ++i) {
    away.push_back(space->store({filled(i)}));
    const int64_t kept = std::min<int64_t>(i + 1, kLeavingStores) * kBytes;
    CHECK(space->leaving_bytes() == kept);
    CHECK(active_bytes() - before == kept);
  }
  space->let_go();
  CHECK(space->leaving_bytes() == 0);
  CHECK(active_bytes() == before);
  for (int i = 0; i < 5; ++i) {
    CHECK(away[i]->fetch() == kBytes);
    std::vector<at::Tensor> back = away[i]->take();
    CHECK(on_host(back.at(0).add(0), "a test looks")[0].item<float>() == static_cast<float>(i));
    away[i].reset();
    back.clear();
    CHECK(active_bytes() == before);
  }
  CHECK(fake::take_faults().empty());
}

// As in a run that fails.
TEST_CASE("a tensor may be dropped at any time while it is moved to the host or back") {
  fake::take_faults();
  {
    const auto space = offload_to_host(fake::device());
    const auto away = space->store({filled(1)});
    away->fetch();
  }
  CHECK(fake::take_faults().empty());
}

}  // namespace shardline::offload_test
