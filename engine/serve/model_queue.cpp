#include "engine/serve/model_queue.h"

#include "engine/serve/http/http_message.h"

namespace shardline {

struct ModelQueue::Call {
  std::vector<Result> results;
  size_t open = 0;  // results that are missing
  std::string failure;
  bool is_abandoned = false;
  std::condition_variable done;
};

int64_t ModelQueue::Item::tokens() const {
  if (const auto* example = std::get_if<Example>(&work)) return std::ssize(example->ids);
  return std::ssize(std::get<Continuation>(work).prompt);
}

std::vector<ModelQueue::Result> ModelQueue::run(std::vector<Work> works, Clock::time_point deadline) {
  const auto call = std::make_shared<Call>();
  call->results.resize(works.size());
  call->open = works.size();
  std::unique_lock lock(mutex_);
  if (!closed_.empty()) throw HttpError(503, closed_);
  for (size_t place = 0; place < works.size(); ++place) items_.push_back({std::move(works[place]), call, place});
  arrived_.notify_one();
  const bool is_done = call->done.wait_until(lock, deadline, [&] { return call->open == 0 || !call->failure.empty(); });
  call->is_abandoned = true;
  if (!call->failure.empty()) throw HttpError(closed_.empty() ? 500 : 503, call->failure);
  if (!is_done) throw HttpError(504, "the model did not answer in the time that a request has; see --timeout");
  return std::move(call->results);
}

std::vector<ModelQueue::Item> ModelQueue::take(const BatchLimits& limits, std::chrono::milliseconds patience) {
  std::vector<Item> taken;
  std::unique_lock lock(mutex_);
  if (items_.empty() && patience.count() > 0) arrived_.wait_for(lock, patience);
  int64_t tokens = 0;
  while (!items_.empty() && std::ssize(taken) < limits.most) {
    if (items_.front().call->is_abandoned) {
      items_.pop_front();
      continue;
    }
    tokens += items_.front().tokens();
    if (!taken.empty() && tokens > limits.most_tokens) break;
    taken.push_back(std::move(items_.front()));
    items_.pop_front();
  }
  return taken;
}

bool ModelQueue::is_abandoned(const Item& item) const {
  const std::lock_guard lock(mutex_);
  return item.call->is_abandoned;
}

void ModelQueue::finish(const Item& item, Result result) {
  const std::lock_guard lock(mutex_);
  item.call->results[item.place] = std::move(result);
  if (--item.call->open == 0) item.call->done.notify_one();
}

void ModelQueue::fail(const Item& item, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  item.call->failure = reason;
  item.call->done.notify_one();
}

void ModelQueue::close(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  closed_ = reason;
  for (const Item& item : std::exchange(items_, {})) {
    item.call->failure = reason;
    item.call->done.notify_one();
  }
}

int64_t ModelQueue::waiting() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(items_);
}

}  // namespace shardline
