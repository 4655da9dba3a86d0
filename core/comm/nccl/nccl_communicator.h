// One rank per GPU, using NCCL directly. Each group has its own NCCL communicator and its own high-priority stream.
//
//  - wait() makes the current stream wait. The host waits only until NCCL has enqueued the operation: for
//    microseconds or, if a first message establishes a connection, until the other rank arrives. barrier() makes the
//    host wait.
//  - A thread of the rank watches running operations. After an error of NCCL or of the device, or when the current
//    stream has waited longer than the limit, it aborts `control`, which ends the job, and then NCCL.
//  - Tensors are kept alive until the current stream waits for their operation, or until the operation is done.
//  - Sends and receives are collected and start together, as one NCCL group, at the next wait(), start(), poll() or
//    collective of this communicator: two neighbours that both send first would otherwise block each other. They also
//    end together.
//  - After a failure, all communicators of the world are aborted; otherwise each is finalized and destroyed with its
//    last owner.
//  - NCCL chooses the order of addition.
#pragma once
#include "core/comm/communicator.h"
#include "core/comm/nccl/nccl_api.h"

namespace shardline {

// Collective over the ranks of `control`, a CPU communicator that carries the unique id and later the colors of splits.
// `device` is this rank's GPU and must be the thread's current device; no two ranks may share one. Throws
// DistributedError if NCCL does not start within the start-up limit or if ranks load different versions, and RunError
// if the version is older than the one this program was compiled for.
CommunicatorPtr make_nccl_world(CommunicatorPtr control, int device, const NcclApi& api = nccl_api());

}  // namespace shardline
