#include "engine/serve/service_counts.h"

#include "core/error.h"

namespace shardline {

void ServiceCounts::answered(int status, double seconds) {
  const std::lock_guard lock(mutex_);
  ++by_status_[status];
  ++timed_;
  seconds_ += seconds;
  recent_ += (seconds - recent_) / 16;
  for (size_t i = 0; i < kBounds.size(); ++i) within_[i] += seconds <= kBounds[i];
}

void ServiceCounts::refused(int status) {
  const std::lock_guard lock(mutex_);
  ++by_status_[status];
}

void ServiceCounts::computed(int64_t items, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  ++passes_;
  items_ += items;
  tokens_ += tokens;
}

double ServiceCounts::recent_seconds() const {
  const std::lock_guard lock(mutex_);
  return recent_;
}

std::string ServiceCounts::text(const Now& now) const {
  const std::lock_guard lock(mutex_);
  std::string text;
  const auto head = [&](const std::string& name, const char* kind, const char* help) {
    text += cat("# HELP shardline_", name, ' ', help, "\n# TYPE shardline_", name, ' ', kind, '\n');
  };
  const auto value = [&](const std::string& name, const char* kind, const char* help, int64_t number) {
    head(name, kind, help);
    text += cat("shardline_", name, ' ', number, '\n');
  };
  head("requests_total", "counter", "Requests that were answered, by status.");
  for (const auto& [status, count] : by_status_)
    text += cat("shardline_requests_total{status=\"", status, "\"} ", count, '\n');
  head("request_seconds", "histogram", "Time from the arrival of a whole request to its answer.");
  for (size_t i = 0; i < kBounds.size(); ++i)
    text += cat("shardline_request_seconds_bucket{le=\"", kBounds[i], "\"} ", within_[i], '\n');
  text += cat("shardline_request_seconds_bucket{le=\"+Inf\"} ", timed_, "\nshardline_request_seconds_sum ", seconds_,
              "\nshardline_request_seconds_count ", timed_, '\n');
  value("passes_total", "counter", "Passes through the model.", passes_);
  value("items_total", "counter", "Examples or sequences in these passes.", items_);
  value("tokens_total", "counter", "Tokens in these passes.", tokens_);
  value("requests_working", "gauge", "Requests in progress.", now.working);
  value("requests_queued", "gauge", "Requests that wait for a worker.", now.queued);
  value("items_waiting", "gauge", "Examples or prompts that wait for the model.", now.waiting);
  value("connections", "gauge", "Open connections.", now.connections);
  return text;
}

}  // namespace shardline
