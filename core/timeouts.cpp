#include "core/timeouts.h"

#include <cmath>
#include <cstdlib>
#include <mutex>
#include <string>

#include "core/error.h"

namespace shardline {
namespace {

Timeouts initial_table() {
  Timeouts table;
  const char* text = std::getenv("SHARDLINE_TIMEOUT_SECONDS");
  if (text == nullptr || *text == '\0') return table;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (*end != '\0' || !(seconds > 0) || !(seconds < 1e8))
    throw ConfigError(
        cat("SHARDLINE_TIMEOUT_SECONDS must be a number of seconds between 0 and 1e8, but the environment "
            "has \"",
            text, "\"; unset it for the defaults"));
  const std::chrono::milliseconds limit(static_cast<long>(std::ceil(seconds * 1000)));
  return {limit, limit, limit};
}

struct Table {
  std::mutex mutex;
  Timeouts entries = initial_table();
};

Table& table_of_process() {
  static Table table;
  return table;
}

}  // namespace

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
