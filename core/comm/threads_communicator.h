// Ranks that are threads of this process: fast tests and one debugger for any layout, and many ranks on one
// accelerator. Waits block; sends never do. The last rank to arrive computes a collective.
//
// Tensors of an accelerator are of one device, and each rank has a stream of its own. A wait blocks until all ranks
// have come; the streams wait for the rest.
#pragma once
#include <exception>
#include <functional>
#include <vector>

#include "core/comm/communicator.h"

namespace shardline {

// The worlds of ranks 0 to n-1, each to be used by one thread. Ranks that disagree about an operation (kind, dtype,
// elements, root, number) end the whole world, and the error names what both asked for.
std::vector<CommunicatorPtr> make_thread_world(int n);

// Runs fn(world) on n threads, with current_rank() set and one OpenMP thread each, and joins them. If ranks throw, the
// world is aborted and the exception of the first is thrown again: same type, with the rank in its message unless it is
// one of all ranks.
void run_ranks(int n, const std::function<void(CommunicatorPtr world)>& fn);

// Throws the exception of a rank as run_ranks does.
[[noreturn]] void rethrow_of_rank(const std::exception_ptr& exception, int rank);

}  // namespace shardline
