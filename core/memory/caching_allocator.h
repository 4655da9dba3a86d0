// The program's allocator of CPU tensors. It keeps freed blocks in lists by size, so that in the steady state a step
// requests nothing from the system and touches no new pages. It also counts memory by purpose.
//
// Sizes are rounded up to an eighth of a power of two. If the sizes change from step to step, as the lengths of samples
// do, larger blocks are used for smaller requests, and blocks are returned to the system if the memory of all blocks
// would otherwise exceed the highest use so far by more than a sixteenth. Every function may be called from any thread.
// Totals are for the process; the class comes from the allocating thread's innermost MemoryScope.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "core/error.h"

namespace shardline {

enum class MemoryClass { weights, gradients, optimizer, activations, communication, workspace };
constexpr size_t kMemoryClasses = 6;
const char* to_string(MemoryClass memory);

// While the object exists, what this thread allocates belongs to this class; without a scope, to workspace.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryClass memory);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  MemoryClass before_;
};

// Bytes that tensors requested; `cached` counts whole blocks.
struct MemoryTotals {
  std::array<int64_t, kMemoryClasses> now = {}, peak_of_class = {};
  int64_t live = 0;        // sum of `now`
  int64_t peak_live = 0;   // maximum so far
  int64_t cached = 0;      // in free lists
  int64_t new_blocks = 0;  // requested from the system so far
};

// Thrown if an allocation would exceed the cap or is refused by the system; the message states the totals.
struct HostMemoryError : RunError {
  using RunError::RunError;
};

void use_caching_allocator();  // for all CPU tensors from now on; may be called again
MemoryTotals memory_totals();
void restart_memory_peaks();  // resets the peaks to the bytes live now
// Limits live and cached bytes; cached bytes are returned to the system first. 0: no limit.
void set_memory_cap(int64_t bytes);
int64_t trim_memory();  // returns all cached blocks to the system; the result is their size in bytes

}  // namespace shardline
