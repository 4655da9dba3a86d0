#include "engine/run/rank_devices.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <utility>

#include "core/comm/communicator_base.h"
#include "core/device/accelerator.h"
#include "core/error.h"
#include "engine/config/rules/precision_rules.h"

namespace shardline {
namespace {

constexpr char kNoDevice[] = " cpu";
constexpr double kGiB = 1 << 30;
constexpr int kOldestCapability = 80;     // the kernels use instructions of 8.0
constexpr double kSmallestMemory = kGiB;  // for CUDA, NCCL and cuBLAS, before any tensor is created

bool is_device(const std::string& name) {
  return !name.ends_with(kNoDevice);
}

std::string kernels_text(const GpuSoftware& software) {
  std::string text = "kernels for ";
  for (const int code : software.code) text += capability_text(code) + ", ";
  for (const int ptx : software.ptx) text += cat("PTX for ", capability_text(ptx), " and newer, ");
  return text.substr(0, text.size() - 2);
}

}  // namespace

std::string cuda_text(int version) {
  return cat(version / 1000, '.', version % 1000 / 10);
}

std::string capability_text(int capability) {
  return cat(capability / 10, '.', capability % 10);
}

int gpu_count() {
  return accelerator_count();
}

std::string no_gpu_reason(const std::optional<GpuSoftware>& software, const char* visible) {
  if (!software) return "this build has no CUDA; configure it with -DSHARDLINE_CUDA=ON (docs/gpus.md)";
  if (software->driver == 0)
    return "no NVIDIA driver was found; install one, or start the container with GPUs (docker run --gpus all); "
           "nvidia-smi must work here";
  if (software->driver / 1000 < software->runtime / 1000)
    return cat("the driver of this host supports CUDA ", cuda_text(software->driver), " at most, and this build uses ",
               cuda_text(software->runtime), "; update the driver, or build with LibTorch and a toolkit for CUDA ",
               software->driver / 1000, " (docs/gpus.md has the versions)");
  const std::string none = cat("CUDA finds no GPU (", software->error, ')');
  if (visible)
    return cat(none, " with CUDA_VISIBLE_DEVICES=\"", visible, "\"; unset it, or name GPUs that nvidia-smi lists");
  return none + "; nvidia-smi shows what the driver finds";
}

std::string no_gpu_reason() {
  return no_gpu_reason(gpu_software(), std::getenv("CUDA_VISIBLE_DEVICES"));
}

// A receive of a pipeline occupies the GPU until its message arrives. CUDA may wait for the whole GPU when it loads a
// kernel, and NCCL when it connects, so both do it at the start; streams that outnumber the GPU's queues would wait for
// each other. CUDA and NCCL read these variables when they start; a value that the user has set stays. When memory is
// short, torch's allocator waits for the whole GPU before it returns unused memory to CUDA, but only for its own stream
// if the memory is in expandable segments.
void prepare_for_pipelines(const Config& config) {
  if (config.runtime.device == DeviceChoice::cpu || config.smp.pipeline_parallel_degree == 1) return;
  for (const auto& [name, value] : {std::pair{"CUDA_MODULE_LOADING", "EAGER"},
                                    {"NCCL_RUNTIME_CONNECT", "0"},
                                    {"CUDA_DEVICE_MAX_CONNECTIONS", "32"}})
    setenv(name, value, /*overwrite=*/0);
  const bool allocator_is_set = std::getenv("PYTORCH_CUDA_ALLOC_CONF") || std::getenv("PYTORCH_ALLOC_CONF");
  if (!allocator_is_set) setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", /*overwrite=*/0);
}

at::Device choose_device(const Config& config, int local_rank) {
  if (config.runtime.device == DeviceChoice::cpu) return at::kCPU;
  const int gpus = gpu_count();
  if (config.runtime.device == DeviceChoice::cuda && gpus == 0)
    throw ConfigError(cat("/runtime/device: \"cuda\" needs a GPU, but ", no_gpu_reason(), ", or use \"cpu\""));
  if (gpus == 0) return at::kCPU;
  return accelerator(config.runtime.communicator == CommunicatorChoice::threads ? 0 : local_rank % gpus);
}

void check_device(const Config& config, at::Device device) {
  if (!is_accelerator(device)) {
    if (uses_tf32(config))
      throw ConfigError(
          "/training/tf32: needs a GPU of compute capability 8.0 or newer, and this run computes on the CPU; leave it "
          "out, or set it to false");
    return;
  }
  if (config.runtime.memory_cap > 0)
    throw ConfigError("/runtime/memory_cap: is for CPU tensors, and the device is a GPU; leave it out");
  if (config.training.full_determinism)
    throw ConfigError(
        "/training/full_determinism: is not supported on GPUs; leave it out, or set runtime.device to \"cpu\"");
  const auto facts = gpu_facts(device.index());
  const auto software = gpu_software();
  if (facts && software) check_gpu(device_text(device), *facts, *software);
}

void check_gpu(const std::string& which, const GpuFacts& facts, const GpuSoftware& software) {
  // Code also runs on newer GPUs of its major version.
  const auto runs = [&](int code) { return code / 10 == facts.capability / 10 && code <= facts.capability; };
  const auto compiles = [&](int ptx) { return ptx <= facts.capability; };
  if (std::ranges::any_of(software.code, runs) || std::ranges::any_of(software.ptx, compiles)) return;
  const std::string build = facts.capability >= kOldestCapability
                                ? cat(", or build for it with -DCMAKE_CUDA_ARCHITECTURES=", facts.capability)
                                : cat("; no build supports GPUs older than ", capability_text(kOldestCapability));
  throw RunError(cat(which, " has compute capability ", capability_text(facts.capability), ", but this build has ",
                     kernels_text(software),
                     "; set runtime.device to \"cpu\", or hide this GPU with CUDA_VISIBLE_DEVICES", build));
}

void check_device_memory(at::Device device) {
  if (!is_accelerator(device)) return;
  double free_bytes = 0, all_bytes = 0;
  try {
    const c10::DeviceGuard on_device(device);
    free_bytes = free_device_memory(device);
    all_bytes = device_memory_size(device);
  } catch (const c10::Error& error) {  // no room even for CUDA, or the device is broken or reserved for others
    const std::string text = error.what_without_backtrace();
    throw RunError(cat(device_text(device), " cannot be used: ", text.substr(0, text.find('\n')),
                       "; nvidia-smi shows its state and the processes that use it; end them, or choose other GPUs "
                       "with CUDA_VISIBLE_DEVICES"));
  }
  check_device_memory(device_text(device), free_bytes, all_bytes);
}

void check_device_memory(const std::string& which, double free_bytes, double all_bytes) {
  if (free_bytes >= kSmallestMemory) return;
  const auto gib = [](double bytes) { return std::round(bytes / kGiB * 10) / 10; };
  throw RunError(cat(which, " has ", gib(free_bytes), " of ", gib(all_bytes),
                     " GiB free: other processes use it (nvidia-smi lists them); end them, or choose other GPUs with "
                     "CUDA_VISIBLE_DEVICES"));
}

std::string device_text(at::Device device) {
  if (!is_accelerator(device)) return cat("host ", host_name());
  const auto facts = gpu_facts(device.index());
  const int index = device.index();
  return cat("GPU ", index, " of host ", host_name(), facts ? cat(" (", facts->name, ")") : "");
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
                          ") does; check the driver and CUDA_VISIBLE_DEVICES there, or set runtime.device to \"cpu\""));
  return with != names.end() && std::set<std::string>(names.begin(), names.end()).size() == names.size();
}

}  // namespace shardline
