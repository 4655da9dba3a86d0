#include "engine/serve/service.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr size_t kLargeBody = 1 << 20;

// glibc would keep the memory that a large request has used and freed in the arena of its thread.
void give_memory_back() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

// The model for one request.
class ModelOfRequest final : public ServedModel {
 public:
  ModelOfRequest(const ModelFacts& facts, ModelQueue& queue, ModelQueue::Clock::time_point deadline)
      : ServedModel(facts), queue_(queue), deadline_(deadline) {}

  std::vector<Logits> logits(std::vector<Example> examples) const override { return run<Logits>(std::move(examples)); }
  std::vector<std::vector<int32_t>> continued(std::vector<Continuation> prompts) const override {
    return run<std::vector<int32_t>>(std::move(prompts));
  }
  void require_time() const override {
    if (ModelQueue::Clock::now() >= deadline_)
      throw HttpError(504, "the request took longer than --timeout allows; ask for less at a time");
  }

 private:
  template <class Made, class Work>
  std::vector<Made> run(std::vector<Work> works) const {
    std::vector<Made> made;
    for (auto& result : queue_.run({std::move_iterator(works.begin()), std::move_iterator(works.end())}, deadline_))
      made.push_back(std::get<Made>(std::move(result)));
    return made;
  }

  ModelQueue& queue_;
  ModelQueue::Clock::time_point deadline_;
};

}  // namespace

Service::Service(const ServeOptions& options, const ModelFacts& facts, const ServeHandlers& handlers, ModelQueue& queue)
    : options_(options), facts_(facts), handlers_(handlers), queue_(queue) {
  for (int i = 0; i < options.workers; ++i) workers_.emplace_back([this] { work(); });
}

void Service::finish() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  arrived_.notify_all();
  for (std::thread& worker : std::exchange(workers_, {})) worker.join();
}

void Service::handle(HttpRequest request, HttpServer::Respond respond_to) {
  Accepted accepted{std::move(request), std::move(respond_to), Clock::now()};
  const std::string& path = accepted.request.path;
  const bool is_get = accepted.request.method == "GET" || accepted.request.method == "HEAD";
  if (path == "/ping" && is_get) return accepted.respond({.body = "{}\n"});
  if (path == "/metrics" && is_get)
    return accepted.respond({.content_type = "text/plain; version=0.0.4", .body = counts_text()});
  if (path == "/ping" || path == "/metrics")
    return respond(accepted, error_response(405, cat(path, " takes GET, not ", accepted.request.method)));
  if (path != "/invocations")
    return respond(accepted, error_response(404, cat("there is no ", path, "; use /invocations, /ping or /metrics")));
  if (accepted.request.method != "POST")
    return respond(accepted, error_response(405, cat("/invocations accepts POST, not ", accepted.request.method)));
  const std::string encoding = media_type(accepted.request.content_encoding);
  if (!encoding.empty() && encoding != "identity")
    return respond(accepted, error_response(415, cat("bodies with Content-Encoding \"", encoding,
                                                     "\" are not supported; send them uncompressed")));
  std::unique_lock lock(mutex_);
  if (ends_) {
    lock.unlock();
    return respond(accepted, error_response(503, "the server is stopping"));
  }
  const int64_t open = working_ + std::ssize(accepted_);
  if (open >= options_.workers + options_.queue_length) {
    lock.unlock();
    return respond(accepted, error_response(429,
                                            cat("the queue is full: ", options_.workers, " in progress, ",
                                                options_.queue_length, " waiting; try again later"),
                                            seconds_until_room()));
  }
  accepted_.push_back(std::move(accepted));
  arrived_.notify_one();
}

void Service::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    arrived_.wait(lock, [&] { return ends_ || !accepted_.empty(); });
    if (accepted_.empty()) return;
    const Accepted accepted = std::move(accepted_.front());
    accepted_.pop_front();
    ++working_;
    lock.unlock();
    HttpResponse response = answer(accepted);
    if (accepted.request.body.size() > kLargeBody) give_memory_back();
    lock.lock();
    --working_;
    lock.unlock();
    respond(accepted, std::move(response));
    lock.lock();
  }
}

HttpResponse Service::answer(const Accepted& accepted) const {
  const Clock::time_point deadline = accepted.arrived + std::chrono::seconds(options_.timeout);
  const HttpRequest& request = accepted.request;
  try {
    if (Clock::now() >= deadline) throw HttpError(504, "the request waited longer than --timeout allows", 1);
    const ModelOfRequest model(facts_, queue_, deadline);
    AnswerBody made = handlers_.transform_fn(model, request.body, request.content_type, request.accept);
    return {.content_type = std::move(made.content_type), .body = std::move(made.body)};
  } catch (const HttpError& error) {
    return error_response(error.status, error.what(), error.retry_after_seconds);
  } catch (const DataError& error) {
    return error_response(400, error.what());
  } catch (const std::exception& error) {
    return error_response(500, error.what());
  } catch (...) {  // the handlers of a program may throw anything
    return error_response(500, "a handler failed without a message");
  }
}

void Service::respond(const Accepted& accepted, HttpResponse response) {
  counts_.answered(response.status, std::chrono::duration<double>(Clock::now() - accepted.arrived).count());
  accepted.respond(std::move(response));
}

std::string Service::counts_text() {
  ServiceCounts::Now now{.waiting = queue_.waiting(), .connections = connections_()};
  const std::lock_guard lock(mutex_);
  now.working = working_;
  now.queued = std::ssize(accepted_);
  return counts_.text(now);
}

int Service::seconds_until_room() const {
  const double seconds = counts_.recent_seconds() * options_.queue_length / options_.workers;
  return std::clamp<int>(std::ceil(seconds), 1, 60);
}

}  // namespace shardline
