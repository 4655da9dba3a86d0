// Where ranks compute, and which of them have a device of their own.
#pragma once
#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/device/gpu_facts.h"
#include "engine/config/keys/options.h"

namespace shardline {

// GPUs of this host; 0 in builds for CPUs.
int gpu_count();

// The device of a rank: a GPU where the config wants one and there is one. Ranks of a host that are processes take its
// GPUs in turn; ranks that are threads share the first.
at::Device choose_device(const Config& config, int local_rank);

// What a device cannot do: ConfigError if the config has keys that it does not support, RunError if it is too old for
// this build or has no memory left. It becomes the thread's current one for the question.
void check_device(const Config& config, at::Device device);
void check_gpu(int index, const GpuFacts& facts, double free_bytes);

// By rank, a name that no other device of the job has: "host GPU-1f2e...", or "host cpu". Collective.
std::vector<std::string> device_names(Communicator& world, at::Device device);
// Whether no two ranks share a device. ConfigError if only some of them have one.
bool each_has_its_own(const std::vector<std::string>& names);

}  // namespace shardline
