// Tests NCCL's own table, which builds for CUDA have, with an NCCL that this test defines. Its functions are
// renamed here, because this build's library already has functions with their names, those of builds without CUDA.
#define has_nccl has_nccl_of_cuda
#define nccl_api nccl_api_of_cuda
#define nccl_version_text nccl_version_text_of_cuda
#include "core/comm/nccl/nccl_api.cpp"

#include <nccl.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/catch.h"

namespace shardline::nccl_api_test {
namespace {

using Texts = std::vector<std::string>;

Texts calls;
ncclResult_t result = ncclSuccess;
ncclComm_t* written_later = nullptr;  // the variable in which NCCL was to store the new communicator

// Handles and addresses; nothing reads what they point to.
template <class T>
T* address(int number) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(number));
}
int number_of(const void* handle) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(handle));
}

template <class... Parts>
ncclResult_t called(const Parts&... parts) {
  std::string call;
  ((call += cat(call.empty() ? "" : " ", parts)), ...);
  calls.push_back(call);
  return result;
}

Texts taken() {
  return std::exchange(calls, {});
}

// The calls below pass these arguments: from memory 1 to memory 2, on communicator 3 and stream 4.
const void* const kFrom = address<void>(1);
void* const kTo = address<void>(2);
void* const kComm = address<void>(3);
void* const kStream = address<void>(4);

}  // namespace

TEST_CASE("NCCL may write a new communicator into the caller's variable after the call has returned") {
  const NcclApi& api = nccl_api_of_cuda();
  result = ncclInProgress;
  NcclId id{};
  id.front() = 'a', id.back() = 'z';
  void *comm = nullptr, *part = nullptr;
  CHECK(api.init_rank(&comm, 4, &id, 2) == kNcclInProgress);
  CHECK(comm == nullptr);
  *written_later = address<ncclComm>(7);
  CHECK(comm == address<void>(7));
  CHECK(api.split(comm, 5, 6, &part) == kNcclInProgress);
  *written_later = address<ncclComm>(8);
  CHECK(part == address<void>(8));
  CHECK(taken() == Texts{"init rank 2 of 4 with az, does not block", "split 7 color 5 key 6, does not block"});
  result = ncclSuccess;
}

TEST_CASE("every operation calls its own NCCL function with all arguments in the right order") {
  const NcclApi& api = nccl_api_of_cuda();
  CHECK(api.all_reduce(kFrom, kTo, 10, NcclType::float32, false, kComm, kStream) == kNcclSuccess);
  api.all_reduce(kFrom, kTo, 10, NcclType::float32, true, kComm, kStream);
  api.reduce_scatter(kFrom, kTo, 11, NcclType::bfloat16, false, kComm, kStream);
  api.reduce_scatter(kFrom, kTo, 11, NcclType::bfloat16, true, kComm, kStream);
  api.all_gather(kFrom, kTo, 12, NcclType::int64, kComm, kStream);
  api.broadcast(kFrom, kTo, 13, NcclType::uint8, 9, kComm, kStream);
  api.send(kFrom, 14, NcclType::float16, 8, kComm, kStream);
  api.recv(kTo, 15, NcclType::float64, 7, kComm, kStream);
  api.group_start();
  api.group_end();
  CHECK(taken() == Texts{cat("all_reduce 1 2 10 ", ncclFloat32, " ", ncclSum, " 3 4"),
                         cat("all_reduce 1 2 10 ", ncclFloat32, " ", ncclMax, " 3 4"),
                         cat("reduce_scatter 1 2 11 ", ncclBfloat16, " ", ncclSum, " 3 4"),
                         cat("reduce_scatter 1 2 11 ", ncclBfloat16, " ", ncclMax, " 3 4"),
                         cat("all_gather 1 2 12 ", ncclInt64, " 3 4"), cat("broadcast 1 2 13 ", ncclUint8, " 9 3 4"),
                         cat("send 1 14 ", ncclFloat16, " 8 3 4"), cat("recv 2 15 ", ncclFloat64, " 7 3 4"),
                         "group_start", "group_end"});
  for (const auto& [ours, theirs] : {std::pair{NcclType::int8, ncclInt8},
                                     {NcclType::uint8, ncclUint8},
                                     {NcclType::int32, ncclInt32},
                                     {NcclType::int64, ncclInt64},
                                     {NcclType::float16, ncclFloat16},
                                     {NcclType::bfloat16, ncclBfloat16},
                                     {NcclType::float32, ncclFloat32},
                                     {NcclType::float64, ncclFloat64}}) {
    api.send(kFrom, 1, ours, 0, kComm, kStream);
    CHECK(taken() == Texts{cat("send 1 1 ", theirs, " 0 3 4")});
  }
}

TEST_CASE(
    "NCCL's state, versions and errors reach the caller, and each way to end a communicator calls its own function") {
  const NcclApi& api = nccl_api_of_cuda();
  CHECK(has_nccl_of_cuda());
  CHECK(api.device_type == c10::DeviceType::CUDA);
  CHECK(api.built_version == NCCL_VERSION_CODE);
  int version = 0;
  CHECK(api.get_version(&version) == kNcclSuccess);
  CHECK(nccl_version_text_of_cuda(version) == "2.29.1");
  NcclId id{};
  CHECK(api.get_unique_id(&id) == kNcclSuccess);
  CHECK((id.front() == 'b' && id.back() == 'y'));
  int state = -1;
  CHECK(api.async_error(kComm, &state) == kNcclSuccess);
  CHECK(state == ncclRemoteError);
  CHECK(api.last_error(kComm) == std::string("the last error of 3"));
  taken();
  api.finalize(kComm);
  api.destroy(kComm);
  api.abort(kComm);
  CHECK(taken() == Texts{"finalize 3", "destroy 3", "abort 3"});
  result = ncclSystemError;
  CHECK(api.abort(kComm) == ncclSystemError);
  CHECK(api.get_unique_id(&id) == ncclSystemError);
  result = ncclSuccess;
  taken();
}

}  // namespace shardline::nccl_api_test

using shardline::nccl_api_test::called;
using shardline::nccl_api_test::number_of;

ncclResult_t ncclGetVersion(int* version) {
  *version = 22901;
  return called("version");
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  id->internal[0] = 'b';
  id->internal[127] = 'y';
  return called("id");
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  shardline::nccl_api_test::written_later = comm;
  return called(shardline::cat("init rank ", rank, " of ", size, " with ", id.internal[0], id.internal[127],
                               config->blocking == 0 ? ", does not block" : ""));
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config) {
  shardline::nccl_api_test::written_later = part;
  return called(shardline::cat("split ", number_of(comm), " color ", color, " key ", key,
                               config->blocking == 0 ? ", does not block" : ""));
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = ncclRemoteError;
  return called("async_error", number_of(comm));
}
const char* ncclGetLastError(ncclComm_t comm) {
  static std::string text;
  return (text = shardline::cat("the last error of ", number_of(comm))).c_str();
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return called("finalize", number_of(comm));
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return called("destroy", number_of(comm));
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return called("abort", number_of(comm));
}
ncclResult_t ncclGroupStart() {
  return called("group_start");
}
ncclResult_t ncclGroupEnd() {
  return called("group_end");
}
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return called("all_reduce", number_of(from), number_of(to), count, type, op, number_of(comm), number_of(stream));
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return called("reduce_scatter", number_of(from), number_of(to), count, type, op, number_of(comm), number_of(stream));
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return called("all_gather", number_of(from), number_of(to), count, type, number_of(comm), number_of(stream));
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return called("broadcast", number_of(from), number_of(to), count, type, root, number_of(comm), number_of(stream));
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return called("send", number_of(from), count, type, peer, number_of(comm), number_of(stream));
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return called("recv", number_of(to), count, type, peer, number_of(comm), number_of(stream));
}
