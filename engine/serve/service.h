// Answers requests: GET /ping, GET /metrics, POST /invocations.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/serve/handlers.h"
#include "engine/serve/model_queue.h"
#include "engine/serve/serve_options.h"
#include "engine/serve/service_counts.h"

namespace shardline {

class Service {
 public:
  // All must outlive it. The model's thread serves the other side of the queue.
  Service(const ServeOptions& options, const ModelFacts& facts, const ServeHandlers& handlers, ModelQueue& queue);
  ~Service() { finish(); }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Returns at once. Requests beyond the length of the queue are answered with status 429.
  void handle(HttpRequest request, HttpServer::Respond respond);
  // Returns when all requests that it has accepted are answered. Later ones are refused.
  void finish();
  ServiceCounts& counts() { return counts_; }
  void show_connections(std::function<int()> connections) { connections_ = std::move(connections); }

 private:
  using Clock = ModelQueue::Clock;
  struct Accepted {
    HttpRequest request;
    HttpServer::Respond respond;
    Clock::time_point arrived;
  };
  void work();
  HttpResponse answer(const Accepted& accepted) const;
  void respond(const Accepted& accepted, HttpResponse response);
  std::string counts_text();
  int seconds_until_room() const;

  const ServeOptions& options_;
  const ModelFacts& facts_;
  const ServeHandlers& handlers_;
  ModelQueue& queue_;
  ServiceCounts counts_;
  std::function<int()> connections_ = [] { return 0; };
  std::mutex mutex_;  // guards the four members below
  std::condition_variable arrived_;
  std::deque<Accepted> accepted_;
  int64_t working_ = 0;
  bool ends_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace shardline
