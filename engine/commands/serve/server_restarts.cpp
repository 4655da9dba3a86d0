#include "engine/commands/serve/server_restarts.h"

#include "core/error.h"
#include "engine/launch/exit_codes.h"

namespace shardline {

bool ServerRestarts::again_after(const ServerEnd& end) {
  reason_.clear();
  has_served_ = has_served_ || end.served;
  if (end.exit_code != kExitFailed || end.asked_to_stop || !has_served_) return false;
  early_ = end.served && *end.served >= kEarly ? 0 : early_ + 1;
  if (early_ > kMost)
    reason_ = cat("the server failed ", early_, " times in succession without having served for ", kEarly.count(),
                  " s, so it is not restarted");
  return reason_.empty();
}

}  // namespace shardline
