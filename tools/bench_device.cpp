// Rates of this machine's device, which bound those of a training step, as one JSON line: a large matrix product, a
// copy through its memory, copies from and to page-locked host memory, and the launch of a small kernel.
//
//   bench_device [--type bf16|fp16|fp32] [--device cuda|cpu] [--mebibytes 1024]
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/comm/clock.h"
#include "core/comm/local_communicator.h"
#include "core/device/accelerator.h"
#include "core/device/gpu_facts.h"
#include "core/device/host_memory.h"
#include "core/error.h"
#include "engine/launch/start_ranks.h"
#include "engine/profile/device_times.h"
#include "engine/run/rank_devices.h"

using namespace shardline;

namespace {

struct Options {
  std::string type = "bf16", device = "cuda";
  int64_t mebibytes = 1024;  // of a copy between host and device
};

double best_rate(int64_t bytes, at::Device device, const std::function<void()>& copy) {
  double best = 0;
  for (int repetition = 0; repetition < 5; ++repetition) {
    const double start = steady_seconds();
    copy();
    wait_for_device(device, "the end of what is timed");
    best = std::max(best, bytes / (steady_seconds() - start));
  }
  return best;
}

nlohmann::ordered_json link_to_host(const Options& options, at::Device device) {
  const at::Tensor host = locked_zeros(options.mebibytes << 20, at::kByte);
  const at::Tensor there = at::empty(host.sizes(), host.options().device(device));
  return {{"to_device", best_rate(host.nbytes(), device, [&] { there.copy_(host, /*non_blocking=*/true); })},
          {"to_host", best_rate(host.nbytes(), device, [&] { host.copy_(there, /*non_blocking=*/true); })}};
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
  app.add_option("--mebibytes", options.mebibytes, "of a copy between host and device")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    std::cout << rates(options).dump() << std::endl;
  } catch (const std::exception& error) {
    return report_error(error, std::cerr);
  }
}
