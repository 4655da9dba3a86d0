#include "engine/run/rank_devices.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/comm/communicator_base.h"
#include "core/device/accelerator.h"
#include "core/error.h"

namespace shardline {
namespace {

constexpr char kNoDevice[] = " cpu";
constexpr int kOldestCapability = 80;  // of the kernels, see cmake/EnableCuda.cmake
constexpr double kGiB = 1 << 30;
constexpr double kSmallestMemory = kGiB;  // for CUDA, NCCL and the libraries of products, before any tensor

bool is_device(const std::string& name) {
  return !name.ends_with(kNoDevice);
}

}  // namespace

int gpu_count() {
  return accelerator_count();
}

at::Device choose_device(const Config& config, int local_rank) {
  if (config.runtime.device == DeviceChoice::cpu) return at::kCPU;
  const int gpus = gpu_count();
  if (config.runtime.device == DeviceChoice::cuda && gpus == 0)
    throw ConfigError(
        "/runtime/device: \"cuda\" needs a build with CUDA, a GPU that CUDA_VISIBLE_DEVICES does not hide, and its "
        "driver (nvidia-smi shows both); use \"cpu\" or \"auto\"");
  if (gpus == 0) return at::kCPU;
  return accelerator(config.runtime.communicator == CommunicatorChoice::threads ? 0 : local_rank % gpus);
}

void check_device(const Config& config, at::Device device) {
  if (!is_accelerator(device)) return;
  if (config.runtime.memory_cap > 0)
    throw ConfigError("/runtime/memory_cap: is for CPU tensors, and the device is a GPU; leave it out");
  if (config.training.full_determinism)
    throw ConfigError(
        "/training/full_determinism: is not supported on GPUs; leave it out, or set runtime.device to \"cpu\"");
  if (const auto facts = gpu_facts(device.index())) check_gpu(device.index(), *facts, free_device_memory(device));
}

void check_gpu(int index, const GpuFacts& facts, double free_bytes) {
  const auto gib = [](double bytes) { return std::round(bytes / kGiB * 10) / 10; };
  const std::string which = cat("GPU ", index, " of host ", host_name(), " (", facts.name, ")");
  if (facts.capability < kOldestCapability)
    throw RunError(cat(which, " has compute capability ", facts.capability / 10, ".", facts.capability % 10,
                       "; this build has kernels for ", kOldestCapability / 10, ".", kOldestCapability % 10,
                       " and newer. Set runtime.device to \"cpu\", or hide it with CUDA_VISIBLE_DEVICES"));
  if (free_bytes < kSmallestMemory)
    throw RunError(cat(which, " has ", gib(free_bytes), " of ", gib(facts.memory_bytes),
                       " GiB free: other processes use it (nvidia-smi lists them). End them, or choose other GPUs with "
                       "CUDA_VISIBLE_DEVICES"));
}

std::vector<std::string> device_names(Communicator& world, at::Device device) {
  if (!is_accelerator(device)) return gather_strings(world, host_name() + kNoDevice);
  const auto facts = gpu_facts(device.index());
  return gather_strings(world, cat(host_name(), " GPU-", facts ? facts->uuid : std::to_string(device.index())));
}

bool each_has_its_own(const std::vector<std::string>& names) {
  const auto with = std::find_if(names.begin(), names.end(), is_device);
  const auto without = std::find_if_not(names.begin(), names.end(), is_device);
  if (with != names.end() && without != names.end())
    throw ConfigError(cat("rank ", without - names.begin(), " (", *without, ") finds no GPU, but rank ",
                          with - names.begin(), " (", *with,
                          ") does; check driver and CUDA_VISIBLE_DEVICES there, or set runtime.device to \"cpu\""));
  return with != names.end() && std::set<std::string>(names.begin(), names.end()).size() == names.size();
}

}  // namespace shardline
