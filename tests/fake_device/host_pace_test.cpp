#include "core/device/host_pace.h"

#include <ATen/ops/ones.h>

#include "core/memory/copy_streams.h"
#include "tests/fake_device/fake_device.h"

#include "tests/catch.h"

namespace shardline::host_pace_test {

TEST_CASE("a host that limits its lead has waited for all work except that after the last marks") {
  constexpr size_t kAhead = 2;
  HostPace pace(fake::device(), kAhead);
  fake::take_counts();
  const at::Tensor on_device = at::ones({1}, at::TensorOptions(fake::device()));
  std::vector<at::Tensor> copies;
  for (size_t i = 0; i < 5; ++i) {
    copies.push_back(pinned_tensor({1}, at::kFloat));
    copies.back().copy_(on_device, /*non_blocking=*/true);
    pace.mark("a test");
    for (size_t k = 0; k <= i; ++k) CHECK((copies[k].item<float>() == 1) == (k + kAhead <= i));
  }
  CHECK(fake::take_counts().waits == std::map<std::string, int64_t>{{"a test", 3}});
  HostPace of_cpu(at::kCPU, 0);
  of_cpu.mark("a test");
  CHECK(fake::take_counts().waits.empty());
  CHECK(fake::take_faults().empty());
}

}  // namespace shardline::host_pace_test
