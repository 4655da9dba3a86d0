// A training run on the device without hardware, with our kernels wherever there is one, gives the same numbers as on
// CPUs.
#include <algorithm>
#include <map>

#include "core/comm/local_communicator.h"
#include "optim/update/cuda/cuda_updates.h"
#include "tensor_parallel/kernels/cuda/cuda_kernels.h"
#include "tensor_parallel/products/products.h"
#include "tests/fake_device/fake_device.h"
#include "tests/parity/run.h"

#include "tests/catch.h"

namespace shardline::training_test {
namespace {

class OurKernels {
 public:
  OurKernels() {
    use_products(ProductLibrary::aten);
    use_table(fake::device().type(), &cuda::kernel_table());
    use_updates(fake::device().type(), &cuda::updates());
  }
  ~OurKernels() {
    use_products(ProductLibrary::automatic);
    use_table(fake::device().type(), nullptr);
    use_updates(fake::device().type(), nullptr);
  }
};

// Launches of torch's operators on the device.
std::map<std::string, int64_t> compared(const parity::Point& point, double tolerance) {
  const OurKernels kernels;
  const parity::Outcome cpu = run_point(point);
  fake::take_counts();
  const parity::Outcome device = run_point(point, {}, parity::shared_by_ranks(fake::device()));
  const auto launches = fake::take_counts().launches;
  CHECK(fake::take_faults() == std::vector<std::string>{});
  REQUIRE(device.losses.size() == cpu.losses.size());
  for (size_t i = 0; i < cpu.losses.size(); ++i) CHECK(device.losses[i] == Approx(cpu.losses[i]).epsilon(tolerance));
  CHECK(device.norm == Approx(cpu.norm).epsilon(tolerance));
  return launches;
}

}  // namespace

TEST_CASE("a run with the kernels of GPUs has the masks, losses and gradients of a run on CPUs") {
  compared({.dtype = "float32", .dropout = true, .shape = "1 head", .global_batch = 2, .steps = 3}, 1e-5);
}

TEST_CASE("ranks that share squares of gradients on their devices clip alike") {
  compared({.d = 2, .dtype = "float32", .shape = "1 head", .global_batch = 2, .steps = 3}, 1e-5);
}

TEST_CASE("a run in half precision without dropout has flash attention in every block and microbatch") {
  const parity::Point point{.dtype = "bf16", .microbatches = 2, .shape = "1 head", .global_batch = 2, .steps = 3};
  const auto launches = compared(point, 1e-2);
  const int64_t blocks = 5, passes = point.steps + 1;  // the gradients of step 1 are also computed by themselves
  const int64_t attentions = passes * point.microbatches * blocks;
  CHECK(launches.at("aten::_scaled_dot_product_flash_attention") == attentions);
  CHECK(launches.at("aten::_scaled_dot_product_flash_attention_backward") == attentions);
}

TEST_CASE("an update is one launch that also rounds, and the host does not wait before it") {
  const OurKernels kernels;
  std::map<std::string, int64_t> waits, torchs;
  std::vector<std::string> ours;
  const cuda::LaunchLog log;
  const parity::Point point{.dtype = "bf16", .shape = "1 head", .global_batch = 2, .steps = 3};
  const auto after = [&](RankTrainer&, int step) {
    const auto counts = fake::take_counts();
    std::vector<std::string> launches;
    for (const auto& launch : log.launches()) launches.push_back(launch.kernel);
    if (step == 3) {
      waits = counts.waits, torchs = counts.launches;
      ours.assign(launches.begin() + std::ssize(ours), launches.end());
    } else if (step < 3) {
      ours = launches;
    }
  };
  run_point_on(point, make_local_world(), {.after_step = after}, {fake::device()});
  CHECK(fake::take_faults() == std::vector<std::string>{});
  CHECK(waits ==
        std::map<std::string, int64_t>{{"gradient norm", 1}, {"loss of a microbatch", 1}, {"the device's clock", 1}});
  CHECK(std::count(ours.begin(), ours.end(), "adam_step") == 1);
  CHECK(std::count(ours.begin(), ours.end(), "clip_factor") == 1);
  CAPTURE(torchs);
  CHECK(torchs.count("aten::mul_.Tensor") == 0);
  CHECK(torchs.count("aten::_fused_adamw_") == 0);
  CHECK(torchs.at("copy") <= 6);  // those of the batch; a segment of parameters would add one each for its rounding
}

}  // namespace shardline::training_test
