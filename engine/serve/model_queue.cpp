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

int64_t ModelQueue::tokens_of(const Work& work) {
  if (const auto* example = std::get_if<Example>(&work)) return std::ssize(example->ids);
  return std::ssize(std::get<Continuation>(work).prompt);
}

std::vector<ModelQueue::Result> ModelQueue::run(std::vector<Work> works, Clock::time_point deadline) {
  const auto call = std::make_shared<Call>();
  call->results.resize(works.size());
  call->open = works.size();
  std::unique_lock lock(mutex_);
  if (!closed_.empty()) throw HttpError(503, closed_);
  if (!works.empty()) waiting_.push_back({call, std::move(works)});
  arrived_.notify_one();
  const bool is_done = call->done.wait_until(lock, deadline, [&] { return call->open == 0 || !call->failure.empty(); });
  call->is_abandoned = true;
  if (!call->failure.empty()) throw HttpError(closed_.empty() ? 500 : 503, call->failure);
  if (!is_done) throw HttpError(504, "the model did not answer within the time limit for requests; see --timeout");
  return std::move(call->results);
}

std::vector<ModelQueue::Item> ModelQueue::take(const BatchLimits& limits, std::chrono::milliseconds patience) {
  std::vector<Item> taken;
  std::unique_lock lock(mutex_);
  if (waiting_.empty() && patience.count() > 0) arrived_.wait_for(lock, patience);
  int64_t tokens = 0;
  while (!waiting_.empty() && std::ssize(taken) < limits.most) {
    Waiting first = std::move(waiting_.front());
    waiting_.pop_front();
    if (first.call->is_abandoned) continue;
    Work& work = first.works[first.next];
    tokens += tokens_of(work);
    if (!taken.empty() && tokens > limits.most_tokens) {
      waiting_.push_front(std::move(first));
      break;
    }
    taken.push_back({std::move(work), first.call, first.next});
    if (++first.next < first.works.size()) waiting_.push_back(std::move(first));
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
  for (const Waiting& waiting : std::exchange(waiting_, {})) {
    waiting.call->failure = reason;
    waiting.call->done.notify_one();
  }
}

int64_t ModelQueue::waiting() const {
  const std::lock_guard lock(mutex_);
  int64_t count = 0;
  for (const Waiting& waiting : waiting_) count += waiting.works.size() - waiting.next;
  return count;
}

}  // namespace shardline
