// The program's allocator of CPU tensors: keeps freed blocks in lists by size, so that a step in the steady state
// requests nothing from the system and no page is faulted in twice, and counts memory by purpose.
//
// Sizes are rounded up to an eighth of a power of two. Every function may be called from any thread; totals are those
// of the process, classes those of the allocating thread's innermost MemoryScope.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "core/error.h"

namespace shardline {

enum class MemoryClass { weights, gradients, optimizer, activations, communication, workspace };
constexpr size_t kMemoryClasses = 6;
const char* to_string(MemoryClass memory);

// What this thread allocates during its life belongs to the class. Without one: workspace.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryClass memory);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  MemoryClass before_;
};

// Bytes that tensors asked for; `cached` in whole blocks.
struct MemoryTotals {
  std::array<int64_t, kMemoryClasses> now = {}, peak_of_class = {};
  int64_t live = 0;        // sum of `now`
  int64_t peak_live = 0;   // largest so far
  int64_t cached = 0;      // in the lists
  int64_t new_blocks = 0;  // that the system was asked for, so far
};

// Thrown by an allocation that the cap forbids; names the totals.
struct MemoryCapError : RunError {
  using RunError::RunError;
};

void use_caching_allocator();  // for all CPU tensors from now on; may be called again
MemoryTotals memory_totals();
void restart_memory_peaks();         // from what is live now
void set_memory_cap(int64_t bytes);  // of live and cached bytes; what is cached is given back first. 0: none
int64_t trim_memory();               // gives all that is cached back to the system; its bytes

}  // namespace shardline
