#include "core/comm/nccl/nccl_api.h"

#include "core/error.h"

#ifdef SHARDLINE_CUDA
#include <nccl.h>

#include <cstring>
#endif

namespace shardline {

std::string nccl_version_text(int version) {
  return cat(version / 10000, '.', version / 100 % 100, '.', version % 100);
}

#ifndef SHARDLINE_CUDA

bool has_nccl() {
  return false;
}

const NcclApi& nccl_api() {
  throw ConfigError(
      "this build of shardline has no NCCL: configure it with -DSHARDLINE_CUDA=ON (needs the CUDA toolkit), or use the "
      "communicator \"mpi\"");
}

#else

bool has_nccl() {
  return true;
}

namespace {

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));
static_assert(ncclSuccess == kNcclSuccess && ncclInProgress == kNcclInProgress && ncclRemoteError == kNcclRemoteError);

ncclComm_t comm_of(void* comm) {
  return static_cast<ncclComm_t>(comm);
}
cudaStream_t stream_of(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

ncclDataType_t type_of(NcclType type) {
  switch (type) {
    case NcclType::int8:
      return ncclInt8;
    case NcclType::uint8:
      return ncclUint8;
    case NcclType::int32:
      return ncclInt32;
    case NcclType::int64:
      return ncclInt64;
    case NcclType::float16:
      return ncclFloat16;
    case NcclType::bfloat16:
      return ncclBfloat16;
    case NcclType::float32:
      return ncclFloat32;
    case NcclType::float64:
      return ncclFloat64;
  }
  return ncclUint8;
}

ncclRedOp_t op_of(bool max) {
  return max ? ncclMax : ncclSum;
}

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

int unique_id(NcclId* id) {
  ncclUniqueId unique = {};
  const ncclResult_t result = ncclGetUniqueId(&unique);
  std::memcpy(id->data(), &unique, sizeof unique);
  return result;
}

// NCCL may write a new handle in the background, so it must get the caller's own variable.
ncclComm_t* new_comm(void** comm) {
  return reinterpret_cast<ncclComm_t*>(comm);
}

int init_rank(void** comm, int size, const NcclId* id, int rank) {
  ncclUniqueId unique;
  std::memcpy(&unique, id->data(), sizeof unique);
  ncclConfig_t config = non_blocking();
  return ncclCommInitRankConfig(new_comm(comm), size, unique, rank, &config);
}

int split(void* comm, int color, int key, void** part) {
  ncclConfig_t config = non_blocking();
  return ncclCommSplit(comm_of(comm), color, key, new_comm(part), &config);
}

int async_error(void* comm, int* state) {
  ncclResult_t now = ncclSuccess;
  const ncclResult_t result = ncclCommGetAsyncError(comm_of(comm), &now);
  *state = now;
  return result;
}

NcclApi real_table() {
  NcclApi api{};
  api.device_type = c10::DeviceType::CUDA;
  api.built_version = NCCL_VERSION_CODE;
  api.get_version = [](int* version) -> int { return ncclGetVersion(version); };
  api.get_unique_id = unique_id;
  api.init_rank = init_rank;
  api.split = split;
  api.async_error = async_error;
  api.last_error = [](void* comm) { return ncclGetLastError(comm_of(comm)); };
  api.finalize = [](void* comm) -> int { return ncclCommFinalize(comm_of(comm)); };
  api.destroy = [](void* comm) -> int { return ncclCommDestroy(comm_of(comm)); };
  api.abort = [](void* comm) -> int { return ncclCommAbort(comm_of(comm)); };
  api.group_start = []() -> int { return ncclGroupStart(); };
  api.group_end = []() -> int { return ncclGroupEnd(); };
  api.all_reduce = [](const void* from, void* to, size_t n, NcclType type, bool max, void* comm, void* stream) -> int {
    return ncclAllReduce(from, to, n, type_of(type), op_of(max), comm_of(comm), stream_of(stream));
  };
  api.reduce_scatter = [](const void* from, void* to, size_t n, NcclType type, bool max, void* comm,
                          void* stream) -> int {
    return ncclReduceScatter(from, to, n, type_of(type), op_of(max), comm_of(comm), stream_of(stream));
  };
  api.all_gather = [](const void* from, void* to, size_t n, NcclType type, void* comm, void* stream) -> int {
    return ncclAllGather(from, to, n, type_of(type), comm_of(comm), stream_of(stream));
  };
  api.broadcast = [](const void* from, void* to, size_t n, NcclType type, int root, void* comm, void* stream) -> int {
    return ncclBroadcast(from, to, n, type_of(type), root, comm_of(comm), stream_of(stream));
  };
  api.send = [](const void* from, size_t n, NcclType type, int peer, void* comm, void* stream) -> int {
    return ncclSend(from, n, type_of(type), peer, comm_of(comm), stream_of(stream));
  };
  api.recv = [](void* to, size_t n, NcclType type, int peer, void* comm, void* stream) -> int {
    return ncclRecv(to, n, type_of(type), peer, comm_of(comm), stream_of(stream));
  };
  return api;
}

}  // namespace

const NcclApi& nccl_api() {
  static const NcclApi api = real_table();
  return api;
}

#endif

}  // namespace shardline
