// The NCCL functions that the nccl communicator calls, as a table. A build without CUDA can thus compile everything
// that uses them and test it with another library. Handles are opaque, results are values of ncclResult_t, and streams
// are the native handles of c10::Stream.
#pragma once
#include <c10/core/DeviceType.h>

#include <array>
#include <cstddef>
#include <string>

namespace shardline {

using NcclId = std::array<char, 128>;

enum class NcclType { int8, uint8, int32, int64, float16, bfloat16, float32, float64 };
constexpr int kNcclSuccess = 0, kNcclRemoteError = 6, kNcclInProgress = 7;

// Whether this build has CUDA and NCCL.
bool has_nccl();

std::string nccl_version_text(int version);  // 22809 -> "2.28.9"

struct NcclApi {
  c10::DeviceType device_type;  // the device type of the tensors
  int built_version;            // the version of the headers, encoded as in get_version

  // Communicators are non-blocking: calls on them may return kNcclInProgress, and async_error reports their progress on
  // any thread. init_rank uses the calling thread's current device.
  int (*get_version)(int* version);
  int (*get_unique_id)(NcclId* id);
  // These may write the new handle until async_error reports completion. It is null before the call.
  int (*init_rank)(void** comm, int size, const NcclId* id, int rank);
  int (*split)(void* comm, int color, int key, void** part);
  int (*async_error)(void* comm, int* state);
  const char* (*last_error)(void* comm);
  int (*finalize)(void* comm);  // completes running operations ...
  int (*destroy)(void* comm);   // ... then frees the communicator; both only after success
  // After a failure: ends running operations and frees the communicator; in an NCCL group, does so for all
  // communicators together. It waits for everything running on the device, including operations of other communicators.
  int (*abort)(void* comm);

  int (*group_start)();
  int (*group_end)();
  int (*all_reduce)(const void* from, void* to, size_t count, NcclType type, bool max, void* comm, void* stream);
  int (*reduce_scatter)(const void* from, void* to, size_t count, NcclType type, bool max, void* comm, void* stream);
  int (*all_gather)(const void* from, void* to, size_t count, NcclType type, void* comm, void* stream);
  int (*broadcast)(const void* from, void* to, size_t count, NcclType type, int root, void* comm, void* stream);
  int (*send)(const void* from, size_t count, NcclType type, int peer, void* comm, void* stream);
  int (*recv)(void* to, size_t count, NcclType type, int peer, void* comm, void* stream);
};

// The table of NCCL itself. Throws ConfigError in a build without CUDA.
const NcclApi& nccl_api();

}  // namespace shardline
