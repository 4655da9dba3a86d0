// Examples and prompts of all requests on their way to the model.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

#include "engine/serve/answers/served_model.h"

namespace shardline {

struct BatchLimits {
  int64_t most = 32;           // examples or sequences that are computed together
  int64_t most_tokens = 8192;  // tokens of these together
};

class ModelQueue {
 public:
  using Clock = std::chrono::steady_clock;
  using Work = std::variant<Example, Continuation>;
  using Result = std::variant<Logits, std::vector<int32_t>>;

  // The results that a request waits for.
  struct Call;
  struct Item {
    Work work;
    std::shared_ptr<Call> call;
    size_t place = 0;  // the place of its result
  };
  static int64_t tokens_of(const Work& work);

  // For threads that answer requests: waits for the results. Throws HttpError if the deadline comes first or if the
  // model has failed.
  std::vector<Result> run(std::vector<Work> works, Clock::time_point deadline);

  // For the model's thread: the next items within these limits, but one item alone may have more tokens. Requests take
  // turns, so that one with many inputs does not delay the others. Waits for the first item for up to `patience`.
  std::vector<Item> take(const BatchLimits& limits, std::chrono::milliseconds patience);
  // Whether no request waits for the item any more.
  bool is_abandoned(const Item& item) const;
  void finish(const Item& item, Result result);
  void fail(const Item& item, const std::string& reason);
  // Makes all waiting items, and all later ones, fail.
  void close(const std::string& reason);
  int64_t waiting() const;

 private:
  struct Waiting {
    std::shared_ptr<Call> call;
    std::vector<Work> works;
    size_t next = 0;  // the first that is not taken
  };

  mutable std::mutex mutex_;  // guards everything below, and the calls
  std::condition_variable arrived_;
  std::deque<Waiting> waiting_;  // each has work that no worker has taken
  std::string closed_;           // the reason, once it is closed
};

}  // namespace shardline
