#include "core/error.h"

namespace shardline {
namespace {
thread_local int rank_of_thread = -1;
}

int current_rank() {
  return rank_of_thread;
}
void set_current_rank(int rank) {
  rank_of_thread = rank;
}

void detail::invariant_failed(const char* condition, const char* file, int line, const std::string& what) {
  throw InvariantError(cat("broken invariant on rank ", current_rank(), " at ", file, ":", line, ": ", condition,
                           what.empty() ? "" : ": ", what));
}

}  // namespace shardline
