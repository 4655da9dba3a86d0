// Ends a process whose ranks are threads when one of them fails while another one hangs. Nothing can end a single
// thread from outside, so the error would never be reported.
#pragma once
#include <exception>
#include <functional>

namespace shardline {

// Calls `rank`, the work of one rank of this process. After one rank has failed, the process ends by itself when all
// ranks have ended. If a second passes in which no rank ends, the process ends without waiting for the others: it
// reports the first failure and returns its exit code. It does not wait for a rank that computes for so long, because
// this rank's next operation with other ranks would fail. Ranks of mpirun end their jobs themselves.
void run_with_end(const std::function<void()>& rank);

// Reports the error that ends the process to standard error, unless another thread has done so, and returns the exit
// code; see report_error.
int report_end(const std::exception& error);

}  // namespace shardline
