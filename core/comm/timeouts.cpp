#include "core/comm/timeouts.h"

#include <cmath>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "core/error.h"

namespace shardline {
namespace {

std::optional<TimeLimit> limit_of_environment() {
  const char* text = std::getenv(kTimeoutVariable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (*end != '\0' || !(seconds > 0) || !(seconds < 1e8))
    throw ConfigError(cat(kTimeoutVariable,
                          " must be a number of seconds between 0 and 1e8, but the environment has \"", text,
                          "\"; unset it for the defaults"));
  return TimeLimit(std::chrono::milliseconds(std::llround(std::ceil(seconds * 1000))), kTimeoutVariable);
}

struct Table {
  std::mutex mutex;
  Timeouts entries = timeouts_with(std::chrono::seconds(kDefaultTimeoutSeconds));
};

Table& table_of_process() {
  static Table table;
  return table;
}

}  // namespace

std::string TimeLimit::advice() const {
  return *setting == '\0' ? "" : cat("; ", setting, " sets this limit");
}

Timeouts timeouts_with(std::chrono::seconds ddp_timeout) {
  if (const auto limit = limit_of_environment()) return {*limit, *limit, *limit};
  Timeouts table;
  table.collective.time = table.point_to_point.time = ddp_timeout;
  return table;
}

Timeouts timeouts() {
  Table& table = table_of_process();
  std::lock_guard lock(table.mutex);
  return table.entries;
}

void set_timeouts(const Timeouts& entries) {
  Table& table = table_of_process();
  std::lock_guard lock(table.mutex);
  table.entries = entries;
}

}  // namespace shardline
