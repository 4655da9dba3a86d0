// Rates of this machine's device, which bound those of a training step, as one JSON line: a large matrix product, a
// copy through its memory, copies from and to page-locked host memory, the launch of a small kernel, and attention with
// and without dropout, which are different kernels.
//
//   bench_device [--type bf16|fp16|fp32] [--device cuda|cpu] [--mebibytes 1024] [--length 1024]
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/variable.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/comm/clock.h"
#include "core/comm/local_communicator.h"
#include "core/device/accelerator.h"
#include "core/device/gpu_facts.h"
#include "core/device/host_memory.h"
#include "core/error.h"
#include "core/model/backward.h"
#include "engine/launch/start_ranks.h"
#include "engine/profile/device_times.h"
#include "engine/run/rank_devices.h"
#include "tensor_parallel/ops/attention.h"

using namespace shardline;

namespace {

struct Options {
  std::string type = "bf16", device = "cuda";
  int64_t mebibytes = 1024;  // size of a copy between host and device
  int64_t length = 1024;     // length of attention's sequences
};

double best_seconds(at::Device device, const std::function<void()>& run) {
  double best = std::numeric_limits<double>::infinity();
  for (int repetition = 0; repetition < 5; ++repetition) {
    const double start = steady_seconds();
    run();
    wait_for_device(device, "the end of what is timed");
    best = std::min(best, steady_seconds() - start);
  }
  return best;
}

nlohmann::ordered_json link_to_host(const Options& options, at::Device device) {
  const at::Tensor host = locked_zeros(options.mebibytes << 20, at::kByte);
  const at::Tensor there = at::empty(host.sizes(), host.options().device(device));
  const auto bytes = static_cast<double>(host.nbytes());
  return {{"to_device", bytes / best_seconds(device, [&] { there.copy_(host, /*non_blocking=*/true); })},
          {"to_host", bytes / best_seconds(device, [&] { host.copy_(there, /*non_blocking=*/true); })}};
}

// Forward and backward of the attention in a block of GPT-2 124M, for 8 sequences.
double attention_seconds(const Options& options, at::Device device, at::ScalarType type, double dropout) {
  constexpr int64_t kSamples = 8, kHeads = 12, kHeadDim = 64;
  const at::Tensor ids = at::zeros({kSamples, options.length}, at::TensorOptions(at::kLong).device(device));
  const Microbatch batch = causal_microbatch(ids, {}, at::arange(kSamples, ids.options()));
  const MicrobatchContext context{.batch = &batch, .step = 1};
  const auto random = [&](int64_t columns) { return on_device(at::randn({batch.tokens(), columns}).to(type), device); };
  const at::Tensor dy = random(kHeads * kHeadDim);
  const at::Tensor qkv = random(3 * kHeads * kHeadDim).requires_grad_(true);
  return best_seconds(device, [&] {
    qkv.mutable_grad().reset();  // a gradient that is already there would be added to
    const at::Tensor y = self_attention(
        qkv, context,
        {.heads = kHeads, .head_dim = kHeadDim, .scale = 0.125, .dropout = dropout, .max_positions = options.length});
    backward_on_this_thread({torch::autograd::impl::gradient_edge(y)}, {dy});
  });
}

nlohmann::ordered_json rates(const Options& options) {
  const at::ScalarType type = options.type == "bf16" ? at::kBFloat16 : options.type == "fp16" ? at::kHalf : at::kFloat;
  RankContext context{.world = make_local_world()};
  if (options.device == "cuda") {
    if (accelerator_count() == 0) throw ConfigError(cat("--device cuda: ", no_gpu_reason(), ", or use --device cpu"));
    context.device = accelerator(0);
  }
  const c10::DeviceGuard on_device(context.device);
  set_current_rank(0);
  const DeviceMeasurement device = measure_device(context, type);
  nlohmann::ordered_json line = {{"device", context.device.str()},
                                 {"memory_bytes", device.memory_bytes},
                                 {"type", device.precision},
                                 {"product_flops_per_second", device.flops_per_second},
                                 {"memory_bytes_per_second", device.memory_bytes_per_second},
                                 {"launch_seconds", device.launch_seconds}};
  line["attention_seconds"] = {{"with_dropout", attention_seconds(options, context.device, type, 0.1)},
                               {"without_dropout", attention_seconds(options, context.device, type, 0)}};
  if (is_accelerator(context.device)) line["host_link_bytes_per_second"] = link_to_host(options, context.device);
  if (const auto gpu = is_accelerator(context.device) ? gpu_facts(0) : std::nullopt)
    line["gpu"] = {{"name", gpu->name},
                   {"multiprocessors", gpu->multiprocessors},
                   {"clock_hz", gpu->clock_hz},
                   {"capability", gpu->capability}};
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("bench_device: rates of this machine's device");
  app.add_option("--type", options.type)->capture_default_str()->check(CLI::IsMember({"bf16", "fp16", "fp32"}));
  app.add_option("--device", options.device)->capture_default_str()->check(CLI::IsMember({"cuda", "cpu"}));
  app.add_option("--mebibytes", options.mebibytes, "size of a copy between host and device, in MiB")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--length", options.length, "length of the sequences of attention")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    std::cout << rates(options).dump() << std::endl;
  } catch (const std::exception& error) {
    return report_error(error, std::cerr);
  }
}
