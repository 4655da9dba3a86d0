// Ranks that are threads cannot be ended from outside: a hanging one would keep the process, and the error of the rank
// that waited for it from being seen.
#pragma once
#include <functional>

namespace shardline {

// Calls `rank`. If it fails because an operation between ranks failed, the process has a second to end by itself; then
// the error is reported and the process ends with 1. Ranks of mpirun end their jobs themselves.
void run_with_end(const std::function<void()>& rank);

}  // namespace shardline
