// Ranks that are threads of this process: fast tests and one debugger for any layout, and many ranks on one
// accelerator. Waits block; sends never do. The last rank to arrive computes a collective.
//
// All tensors of an accelerator are on one device, and each rank has a stream of its own. A wait blocks the host until
// all ranks have issued the operation; the streams wait for the rest.
#pragma once
#include <exception>
#include <functional>
#include <vector>

#include "core/comm/communicator.h"

namespace shardline {

// The worlds of ranks 0 to n-1, each to be used by one thread. If ranks disagree about an operation (kind, dtype,
// elements, root, number), the whole world fails, and the error shows what both asked for.
std::vector<CommunicatorPtr> make_thread_world(int n);

// Runs fn(world) on n threads, with current_rank() set and one OpenMP thread each, and joins them. If ranks throw, the
// world is aborted, and run_ranks throws what rethrow_of_rank throws for the exception of the first rank that failed.
void run_ranks(int n, const std::function<void(CommunicatorPtr world)>& fn);

// Throws the exception of a rank with the rank in its message. An exception of all ranks (OfAllRanks) is thrown
// unchanged. DistributedError, DataError, OutOfMemory, Interrupted (also for StoppedAfterSaving), ConfigError and
// InvariantError keep their types; every other exception becomes a RunError.
[[noreturn]] void rethrow_of_rank(const std::exception_ptr& exception, int rank);

}  // namespace shardline
