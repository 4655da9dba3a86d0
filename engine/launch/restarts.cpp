#include "engine/launch/restarts.h"

#include "core/error.h"
#include "engine/launch/exit_codes.h"

namespace shardline {
namespace {

constexpr int kMostWithoutProgress = 2;

bool may_succeed_later(const AttemptEnd& end) {
  return end.exit_code == kExitFailed && !end.finished;
}

}  // namespace

bool Restarts::again_after(const AttemptEnd& end) {
  ++attempts_;
  reason_.clear();
  if (most_ == 0 || !may_succeed_later(end)) return false;
  without_progress_ = end.saved_something ? 0 : without_progress_ + 1;
  if (end.asked_to_stop)
    reason_ = "the run was asked to stop, so it is not started again";
  else if (without_progress_ == kMostWithoutProgress)
    reason_ = cat("the last ", kMostWithoutProgress, " attempts saved no checkpoint, so the run is not started again");
  else if (attempts_ > most_)
    reason_ = cat("the run was started again ", most_, " times, which is all that mpi_options.max_restarts allows");
  return reason_.empty();
}

}  // namespace shardline
