// Where ranks compute, and which of them have a device of their own.
#pragma once
#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/device/gpu_facts.h"
#include "engine/config/keys/options.h"

namespace shardline {

// GPUs of this host; 0 in builds for CPUs.
int gpu_count();
// Where that is 0: why, and after a semicolon what to change. `visible`: CUDA_VISIBLE_DEVICES, null if unset.
std::string no_gpu_reason(const std::optional<GpuSoftware>& software, const char* visible);
std::string no_gpu_reason();  // on this host

// The device of a rank: a GPU where the config wants one and there is one. Ranks of a host that are processes take its
// GPUs in turn; ranks that are threads share the first. For pipelines, sets what CUDA and NCCL must know before they
// start.
at::Device choose_device(const Config& config, int local_rank);

// What a device cannot do: ConfigError if the config has keys that it does not support, RunError if it is too old for
// this build. Does not set it up: the process that starts the ranks holds no memory there.
void check_device(const Config& config, at::Device device);
void check_gpu(const std::string& which, const GpuFacts& facts, const GpuSoftware& software);

// RunError if other processes have left too little of the device's memory to begin with. Sets the device up.
void check_device_memory(at::Device device);
void check_device_memory(const std::string& which, double free_bytes, double all_bytes);

std::string cuda_text(int version);           // "13.0" of 13000
std::string capability_text(int capability);  // "9.0" of 90

// "GPU 3 of host a (NVIDIA H100)"; "host a" for CPUs.
std::string device_text(at::Device device);

// By rank, a name that no other device of the job has: "host GPU-1f2e...", or "host cpu". Collective.
std::vector<std::string> device_names(Communicator& world, at::Device device);
// Whether no two ranks share a device. ConfigError if only some of them have one.
bool each_has_its_own(const std::vector<std::string>& names);

}  // namespace shardline
