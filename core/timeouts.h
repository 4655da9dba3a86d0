// How long ranks wait for one another: the one table of limits. The environment variable SHARDLINE_TIMEOUT_SECONDS
// replaces every entry (its value must be a number of seconds above 0, else ConfigError).
#pragma once
#include <chrono>

namespace shardline {

struct Timeouts {
  std::chrono::milliseconds start_up{std::chrono::seconds(300)};     // building the world, its end
  std::chrono::milliseconds collective{std::chrono::seconds(1800)};  // all_reduce, ..., broadcast, barrier, split
  std::chrono::milliseconds point_to_point{std::chrono::seconds(1800)};
};

// The table of this process. Setting it concerns operations that start afterwards.
Timeouts timeouts();
void set_timeouts(const Timeouts& table);

}  // namespace shardline
