// A world of one rank, for tensors on any device: every operation copies within the process and completes
// immediately.
#pragma once
#include "core/comm/communicator.h"

namespace shardline {

CommunicatorPtr make_local_world();

}  // namespace shardline
