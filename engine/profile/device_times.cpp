#include "engine/profile/device_times.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "core/comm/clock.h"
#include "core/device/accelerator.h"
#include "engine/run/local_cluster.h"
#include "partitioner/layout/cluster.h"
#include "tensor_parallel/products/products.h"

namespace shardline {
namespace {

constexpr int kRepetitions = 5;

// Median seconds of `count` runs on the slowest rank; the first repetition is a warm-up.
double seconds_of(const RankContext& context, int count, const std::function<void()>& run) {
  std::vector<double> seconds;
  for (int repetition = 0; repetition <= kRepetitions; ++repetition) {
    context.world->barrier();
    const double start = steady_seconds();
    for (int i = 0; i < count; ++i) run();
    wait_for_device(context.device, "the end of what is timed");
    if (repetition > 0) seconds.push_back((steady_seconds() - start) / count);
  }
  std::sort(seconds.begin(), seconds.end());
  auto slowest = at::tensor({seconds[kRepetitions / 2]}, at::kDouble);
  context.world->all_reduce(slowest, {.op = ReduceOp::max, .what = "measured time"})->wait();
  return slowest.item<double>();
}

// Ranks of one host share its memory; ranks on one GPU share the GPU's.
double memory_of_rank(const RankContext& context) {
  if (is_accelerator(context.device)) return device_memory_size(context.device);
  return host_memory_size() / context.local_size;
}

}  // namespace

double product_rate(const std::function<double(int64_t size)>& seconds_of_product) {
  constexpr double kLongEnough = 1e-3;
  constexpr int64_t kLargest = 16384;
  for (int64_t size = 1024;; size *= 2) {
    const double seconds = seconds_of_product(size);
    if (seconds >= kLongEnough || size >= kLargest) return 2.0 * std::pow(size, 3) / seconds;
  }
}

DeviceMeasurement measure_device(const RankContext& context, at::ScalarType type) {
  const auto options = at::TensorOptions().dtype(type).device(context.device);
  const auto precision = type == at::kBFloat16 ? Precision::bf16
                         : type == at::kHalf   ? Precision::fp16
                                               : Precision::fp32;
  DeviceMeasurement device{.memory_bytes = memory_of_rank(context), .precision = to_string(precision)};

  constexpr int64_t kSwept = 1 << 25, kFew = 16;
  // Random values: a product of zeros draws little power, and a GPU would then run at a higher clock than in training.
  device.flops_per_second = product_rate([&](int64_t size) {
    const auto x = at::empty({size, size}, options).uniform_(-1, 1);
    auto y = at::zeros({size, size}, options);
    return seconds_of(context, 4, [&] { linear_forward_out(y, x, x, {}); });
  });

  const auto from = at::zeros({kSwept}, options);
  auto to = at::zeros({kSwept}, options);
  const double sweep = seconds_of(context, 2, [&] { to.copy_(from); });
  device.memory_bytes_per_second = 2.0 * from.nbytes() / sweep;

  const auto few = at::zeros({kFew}, options);
  device.launch_seconds = seconds_of(context, 1000, [&] { few.add_(1); });
  return device;
}

}  // namespace shardline
