// When a server whose process or ranks have ended is started again.
#pragma once
#include <chrono>
#include <optional>
#include <string>

namespace shardline {

// How one attempt to serve ended.
struct ServerEnd {
  int exit_code = 0;  // see engine/launch/exit_codes.h
  bool asked_to_stop = false;
  std::optional<std::chrono::seconds> served = {};  // how long it served; unset: it never began to serve
};

class ServerRestarts {
 public:
  static constexpr int kMost = 5;                           // maximum number of attempts in succession that end early
  static constexpr auto kEarly = std::chrono::seconds(60);  // an attempt that serves for a shorter time ends early

  // Whether to start it again. If not, reason() says why; it is empty if a restart was out of the question, because the
  // server never began to serve, was asked to stop, or ended with a code other than kExitFailed.
  bool again_after(const ServerEnd& end);
  const std::string& reason() const { return reason_; }

 private:
  bool has_served_ = false;
  int early_ = 0;  // attempts that have ended early, in succession
  std::string reason_;
};

}  // namespace shardline
