// Ends a process whose ranks are threads when one of them hangs. Nothing can end a single thread from outside, so the
// error of the rank that waited for it would never be reported.
#pragma once
#include <exception>
#include <functional>

namespace shardline {

// Calls `rank`. If it fails because an operation between ranks failed, the process has a second to end by itself; then
// the error is reported and the process ends with 1. Ranks of mpirun end their jobs themselves.
void run_with_end(const std::function<void()>& rank);

// Reports the error that ends the process to standard error, unless another thread has done so, and returns the exit
// code; see report_error.
int report_end(const std::exception& error);

}  // namespace shardline
