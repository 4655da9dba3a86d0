// NCCL without GPUs, for tests: the functions of core/comm/nccl/nccl_api.h on the devices of tests/fake_device. Ranks
// are threads. It moves data, adds in the order of CPU communicators, and reacts to mistakes of programs as NCCL does:
//
//  - init_rank uses the thread's current device, and fails if two ranks use the same one. It and split complete in the
//    background, when all ranks have called them.
//  - A launch is in progress until the connections that it needs exist: both ends of a message, or all ranks of a
//    group's first collective, must have launched theirs, and nothing that waits for another rank may run on their
//    devices (connections need memory, for which the CUDA runtime may wait for everything that runs). Until then none
//    of it is in the stream.
//  - Operations run in the order of their streams, once all ranks have reached them, without the host.
//  - finalize completes in the background, when all ranks have called it.
//  - Ranks that do not issue matching calls fail, and so do the peers of a rank that aborts.
//  - An abort ends the operations of its communicator, or of all communicators of a group, and then waits until
//    nothing runs on the device.
//
// What NCCL leaves undefined is a fault: the use of a communicator that is busy, failed or freed. So is an abort that
// would wait for ever.
#pragma once
#include <string>
#include <vector>

#include "core/comm/nccl/nccl_api.h"

namespace shardline::fake {

const NcclApi& nccl();

// Whether sums are rounded after each addition, as in NCCL; initially they are rounded once, as on CPUs.
void round_at_each_hop(bool rounds);

// The failures of this thread's rank.
struct NcclTrouble {
  int version = 0;           // a version other than built_version
  int unique_id_result = 0;  // the result of get_unique_id
  int init_result = 0;       // the result of init_rank, which then makes no communicator
  int send_result = 0;       // the result of every send
  bool stays_away = false;   // its launches never reach the others
  int busy_questions = 0;    // number of queries of a launch in its stream that return "in progress"
};
NcclTrouble& nccl_trouble();
// From now on, all communicators of this thread report this error.
void break_nccl(int result, const std::string& text);

// The calls of this thread since the last call of this function, such as "all_reduce 10 max", and the faults of all
// threads.
std::vector<std::string> take_nccl_calls();
std::vector<std::string> take_nccl_faults();
// Communicators that were neither destroyed nor aborted.
int live_nccl_communicators();
int live_nccl_groups();  // groups of more than one rank on this thread's rank

}  // namespace shardline::fake
