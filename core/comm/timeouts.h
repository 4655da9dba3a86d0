// How long ranks wait for one another: the only table of limits. A limit counts from the moment a rank begins to wait.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace shardline {

struct TimeLimit {
  std::chrono::milliseconds time{0};
  const char* setting = "";  // the config key or environment variable that sets the limit; "": none

  template <class Rep, class Period>
  constexpr TimeLimit(std::chrono::duration<Rep, Period> limit, const char* changed_by = "")
      : time(std::chrono::duration_cast<std::chrono::milliseconds>(limit)), setting(changed_by) {}

  // The end of an error message: "; SHARDLINE_TIMEOUT_SECONDS sets this limit", or "" if nothing sets it.
  std::string advice() const;
};

inline constexpr char kTimeoutKey[] = "training.ddp_timeout";
inline constexpr char kTimeoutVariable[] = "SHARDLINE_TIMEOUT_SECONDS";

inline constexpr int kDefaultTimeoutSeconds = 1800;

struct Timeouts {
  TimeLimit start_up{std::chrono::seconds(300), kTimeoutVariable};  // making the world and its groups
  TimeLimit collective{std::chrono::seconds(kDefaultTimeoutSeconds),
                       kTimeoutKey};  // all_reduce, ..., broadcast, barrier, split, the end
  TimeLimit point_to_point{std::chrono::seconds(kDefaultTimeoutSeconds), kTimeoutKey};
};

// The table for a job with this value of training.ddp_timeout. The environment variable SHARDLINE_TIMEOUT_SECONDS
// replaces every entry; ConfigError unless its value is a number of seconds above 0 and below 1e8.
Timeouts timeouts_with(std::chrono::seconds ddp_timeout);

// The table of this process; until it is set, the table for kDefaultTimeoutSeconds. Setting it affects only operations
// that start later.
Timeouts timeouts();
void set_timeouts(const Timeouts& table);

}  // namespace shardline
