// Which device each rank computes on, and which ranks have a device of their own.
#pragma once
#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/device/gpu_facts.h"
#include "engine/config/keys/options.h"

namespace shardline {

// The number of GPUs of this host; 0 in builds for CPUs.
int gpu_count();
// Why there is no GPU and, after a semicolon, what to change. `visible`: CUDA_VISIBLE_DEVICES, or null if it is unset.
std::string no_gpu_reason(const std::optional<GpuSoftware>& software, const char* visible);
std::string no_gpu_reason();  // on this host

// For pipelines, sets the environment variables that CUDA, NCCL and torch's allocator read when they start. Call it
// before anything may start CUDA, such as an MPI library for GPUs, and the first time while this process has a single
// thread; later calls change nothing.
void prepare_for_pipelines(const Config& config);

// Chooses the device of a rank: a GPU if the config wants one and there is one. Ranks of a host that are processes take
// its GPUs in turn; ranks that are threads share the first.
at::Device choose_device(const Config& config, int local_rank);

// Throws ConfigError if the config has keys that the device does not support, and RunError if the device is too old for
// this build. Does not initialize the device, so that the process that starts the ranks takes no memory there.
void check_device(const Config& config, at::Device device);
void check_gpu(const std::string& which, const GpuFacts& facts, const GpuSoftware& software);

// Throws RunError if other processes have left too little of the device's memory. Initializes the device.
void check_device_memory(at::Device device);
void check_device_memory(const std::string& which, double free_bytes, double all_bytes);

std::string cuda_text(int version);           // "13.0" of 13000
std::string capability_text(int capability);  // "9.0" of 90

// "GPU 3 of host a (NVIDIA H100)"; "host a" for CPUs.
std::string device_text(at::Device device);

// Returns, by rank, a name that is unique to the device within the job: "host GPU-1f2e...", or "host cpu". Collective.
std::vector<std::string> device_names(Communicator& world, at::Device device);
// Whether no two ranks share a device. Throws ConfigError if only some ranks have one.
bool each_has_its_own(const std::vector<std::string>& names);

}  // namespace shardline
