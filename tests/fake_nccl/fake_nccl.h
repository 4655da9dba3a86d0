// NCCL without GPUs, for tests: the functions of core/comm/nccl/nccl_api.h on the devices of tests/fake_device. Ranks
// are threads. It moves data, in the order of addition of CPU communicators, and behaves as NCCL does where programs go
// wrong:
//  - init_rank takes the thread's current device, and fails when two ranks have the same. It and split end in the
//    background, when all ranks have called them.
//  - A launch is in progress until the connections exist that it needs: both ends of a message, or all ranks of a
//    group's first collective, have launched theirs, and nothing that waits for another rank runs on their devices
//    (connections need memory, for which the CUDA runtime may wait for what is running). Nothing of it is in the stream
//    before that.
//  - Operations run in the order of their streams, when all ranks have come to them, without the host.
//  - Ranks that do not issue matching calls fail, and so do the peers of one that aborts.
//  - An abort ends the communicator's operations, all those of a group together, and then waits until nothing runs on
//    the device.
// What NCCL leaves undefined is a fault: the use of a communicator that is busy, failed or freed. So is an abort that
// would wait for ever.
#pragma once
#include <string>
#include <vector>

#include "core/comm/nccl/nccl_api.h"

namespace shardline::fake {

const NcclApi& nccl();

// What goes wrong on the rank of this thread.
struct NcclTrouble {
  int version = 0;           // another one than built_version
  int unique_id_result = 0;  // of get_unique_id
  int send_result = 0;       // of every send
  bool stays_away = false;   // its launches never reach the others
  int busy_questions = 0;    // to which a launch that is in its stream is still said to be in progress
};
NcclTrouble& nccl_trouble();
// All communicators of this thread report this from now on.
void break_nccl(int result, const std::string& text);

// Since the last question: calls of this thread, such as "all_reduce 10 max", and faults of all.
std::vector<std::string> take_nccl_calls();
std::vector<std::string> take_nccl_faults();
// Communicators that were neither destroyed nor aborted.
int live_nccl_communicators();

}  // namespace shardline::fake
