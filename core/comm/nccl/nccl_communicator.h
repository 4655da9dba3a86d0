// One rank per GPU, directly on NCCL. Each group has its own NCCL communicator and its own stream of high priority.
//
//  - wait() blocks the host until the operation is done on the device, watching NCCL for errors and the clock.
//  - Sends and receives are gathered and start together, as one NCCL group, at the next wait(), poll() or collective of
//    this communicator: two neighbours that both send first would otherwise block each other. They also end together.
//  - On a failure all communicators of the world are aborted; else they are finalised and destroyed with their last
//  owner.
//  - NCCL chooses the order of addition.
#pragma once
#include "core/comm/communicator.h"
#include "core/comm/nccl/nccl_api.h"

namespace shardline {

// Collective over the ranks of `control`, a CPU communicator that carries the unique id and later the colors of splits.
// `device`: this rank's CUDA device; two ranks must not share one. Throws DistributedError when NCCL cannot start
// within the start-up limit.
CommunicatorPtr make_nccl_world(CommunicatorPtr control, int device, const NcclApi& api = nccl_api());

}  // namespace shardline
