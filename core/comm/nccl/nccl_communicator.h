// One rank per GPU, directly on NCCL. Each group has its own NCCL communicator and its own stream of high priority.
//
//  - wait() makes the current stream wait, and the host only until NCCL has put the operation into its stream: some
//    microseconds, or until the other rank comes where a first message makes a connection. barrier() waits on the host.
//  - A thread of the rank watches what is under way. On an error of NCCL or the device, or when the current stream has
//    waited for longer than the limit, it aborts `control`, which ends the job, and then NCCL.
//  - Tensors live until the current stream waits for their operation, or until it is done.
//  - Sends and receives are gathered and start together, as one NCCL group, at the next wait(), start(), poll() or
//    collective of this communicator: two neighbours that both send first would otherwise block each other. They also
//    end together.
//  - On a failure all communicators of the world are aborted; else they are finalised and destroyed with their last
//  owner.
//  - NCCL chooses the order of addition.
#pragma once
#include "core/comm/communicator.h"
#include "core/comm/nccl/nccl_api.h"

namespace shardline {

// Collective over the ranks of `control`, a CPU communicator that carries the unique id and later the colors of splits.
// `device`: this rank's, and the thread's current one; two ranks must not share one. Throws DistributedError when NCCL
// cannot start within the start-up limit or ranks load different versions, RunError when it is older than the one that
// this was compiled for.
CommunicatorPtr make_nccl_world(CommunicatorPtr control, int device, const NcclApi& api = nccl_api());

}  // namespace shardline
