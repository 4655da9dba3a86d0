// Checks that the devices of a run have room for what its plan needs, and explains the errors if memory still
// runs out.
#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "partitioner/memory/rank_memory.h"

namespace shardline {

// The memory of a rank's accelerator or of its host.
struct MemoryRoom {
  std::string id;    // unique among all accelerators or hosts
  std::string text;  // "GPU 1 of host a (NVIDIA H100)"
  double free_bytes = 0, bytes = 0;
};
// These return one entry per rank. Collective.
std::vector<MemoryRoom> gather_rooms(Communicator& world, at::Device device);  // on accelerators, which every rank has
std::vector<MemoryRoom> gather_host_rooms(Communicator& world, const std::vector<int>& host_of);  // see RankContext

// planned: by rank, the bytes of tensors. Throws OutOfMemory if a device does not have enough free memory for what its
// ranks need, or a host for what its ranks offload.
void check_rooms(const std::vector<MemoryRoom>& rooms, const std::vector<MemoryBytes>& planned);
void check_host_rooms(const std::vector<MemoryRoom>& hosts, const std::vector<MemoryBytes>& planned);

// bytes: by rank. Throws RunError if the copies of a checkpoint need more memory than a host has available. All ranks
// call it.
void check_snapshot_room(const std::vector<MemoryRoom>& hosts, const std::vector<double>& bytes);

// "4 ranks share 2 devices: ..." if ranks share any, else empty.
std::string sharing_note(const std::vector<MemoryRoom>& rooms);

// Calls `work`. If an allocation in it fails, on the device or on the host, throws OutOfMemory with the size of the
// request, the memory in use, the memory that the plan counts for this rank, and what to change. planned: returns the
// bytes of this rank's tensors, 0 for classes that are not planned.
void explain_lack_of_memory(const std::function<MemoryBytes()>& planned, at::Device device,
                            const std::function<void()>& work);

}  // namespace shardline
