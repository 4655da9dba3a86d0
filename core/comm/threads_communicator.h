// Ranks as threads of this process: for fast tests, for debugging any layout in one debugger, and for many ranks on one
// accelerator. Waits block; sends never do. The last rank to arrive computes a collective.
//
// All tensors of an accelerator are on one device, and each rank has its own stream. A wait blocks the host until all
// ranks have issued the operation; after that, only streams wait.
#pragma once
#include <exception>
#include <functional>
#include <vector>

#include "core/comm/communicator.h"

namespace shardline {

// The worlds of ranks 0 to n-1, one for each thread. If ranks disagree about an operation (kind, dtype, elements, root,
// number), the whole world fails, and the error shows what both requested.
std::vector<CommunicatorPtr> make_thread_world(int n);

// Runs fn(world) on n threads, each with its current_rank() and one OpenMP thread, and joins them. If ranks throw,
// aborts the world and calls rethrow_of_rank for the exception of the first rank that failed.
void run_ranks(int n, const std::function<void(CommunicatorPtr world)>& fn);

// Rethrows the exception of a rank with the rank in its message. An exception of all ranks (OfAllRanks) is rethrown
// unchanged. DistributedError, DataError, OutOfMemory, Interrupted (also for StoppedAfterSaving), ConfigError and
// InvariantError keep their types; every other exception becomes a RunError.
[[noreturn]] void rethrow_of_rank(const std::exception_ptr& exception, int rank);

}  // namespace shardline
