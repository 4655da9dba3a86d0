#include "engine/serve/model_loop.h"

#include <algorithm>

#include "core/error.h"

namespace shardline {
namespace {

using namespace std::chrono_literals;
using Item = ModelQueue::Item;

constexpr auto kPatience = 100ms;

// Runs a pass. If it fails, its items fail with its error. Returns whether it succeeded.
bool attempt(ModelQueue& queue, const std::vector<Item>& items, bool is_alone, const std::function<void()>& pass) {
  try {
    pass();
    return true;
  } catch (const std::exception& error) {
    for (const Item& item : items) queue.fail(item, cat("the model failed: ", error.what()));
    if (!is_alone) throw;
    return false;
  }
}

// A sequence that is being continued.
class Active {
 public:
  Active(Item item_of, int64_t number_of)
      : item(std::move(item_of)), number(number_of), next(wish().prompt), ids_(next.begin(), next.end()) {}

  bool has_ended() const { return has_ended_; }
  std::vector<int32_t> made() const { return {ids_.begin() + std::ssize(wish().prompt), ids_.end()}; }
  void sample(const at::Tensor& logits) {
    const int64_t position = std::ssize(ids_), made = position - std::ssize(wish().prompt);
    const int32_t token =
        sample_token(ruled_logits(logits, wish().rules, ids_, made), wish().sampling, wish().sequence, position);
    ids_.push_back(token);
    next = {token};
    has_ended_ = made + 1 >= wish().most_new || std::ranges::find(wish().ends, token) != wish().ends.end() ||
                 (wish().stops && wish().stops->are_completed_by(ids_));
  }

  Item item;
  int64_t number;
  std::vector<int64_t> next;  // tokens that the model has not seen

 private:
  const Continuation& wish() const { return std::get<Continuation>(item.work); }

  std::vector<int32_t> ids_;  // the prompt and what follows it
  bool has_ended_ = false;
};

class Continuations {
 public:
  Continuations(RankModel& model, ModelQueue& queue, const BatchLimits& limits, bool is_alone, const LoopEvents& events)
      : model_(model), queue_(queue), limits_(limits), is_alone_(is_alone), events_(events) {}

  void run() {
    while (!events_.is_over()) {
      take_new();
      if (active_.empty() && ended_.empty())
        model_.keep_waiting();
      else
        pass();
    }
  }

 private:
  void take_new() {
    const auto patience = active_.empty() ? kPatience : 0ms;
    const int64_t room = limits_.most - std::ssize(active_);
    for (Item& item : queue_.take({room, limits_.most_tokens}, patience))
      active_.emplace_back(std::move(item), ++last_number_);
  }

  void pass() {
    std::vector<SequenceTokens> tokens;
    std::vector<Item> items;
    int64_t count = 0;
    for (const Active& active : active_) {
      tokens.push_back({active.number, active.next});
      items.push_back(active.item);
      count += std::ssize(active.next);
    }
    const bool is_done = attempt(queue_, items, is_alone_, [&] {
      const at::Tensor logits = model_.next_logits(tokens, std::exchange(ended_, {}));
      for (size_t i = 0; i < active_.size(); ++i) active_[i].sample(logits[i]);
    });
    if (!is_done) {
      for (const Active& active : active_) ended_.push_back(active.number);
      active_.clear();
      return;
    }
    if (!tokens.empty()) events_.computed(std::ssize(tokens), count);
    for (const Active& active : active_)
      if (active.has_ended()) queue_.finish(active.item, active.made());
    std::erase_if(active_, [&](const Active& active) {
      if (!active.has_ended() && !queue_.is_abandoned(active.item)) return false;
      ended_.push_back(active.number);
      return true;
    });
  }

  RankModel& model_;
  ModelQueue& queue_;
  const BatchLimits& limits_;
  bool is_alone_;
  const LoopEvents& events_;
  std::vector<Active> active_;
  std::vector<int64_t> ended_;  // sequences that the ranks still remember
  int64_t last_number_ = 0;
};

}  // namespace

void serve_examples(RankModel& model, ModelQueue& queue, const BatchLimits& limits, bool is_alone,
                    const LoopEvents& events) {
  while (!events.is_over()) {
    const std::vector<Item> items = queue.take(limits, kPatience);
    if (items.empty()) {
      model.keep_waiting();
      continue;
    }
    std::vector<Example> examples;
    int64_t tokens = 0;
    for (const Item& item : items) {
      examples.push_back(std::get<Example>(item.work));
      tokens += ModelQueue::tokens_of(item.work);
    }
    attempt(queue, items, is_alone, [&] {
      std::vector<Logits> logits = model.logits(examples);
      for (size_t i = 0; i < items.size(); ++i) queue.finish(items[i], std::move(logits[i]));
    });
    events.computed(std::ssize(items), tokens);
  }
}

void serve_continuations(RankModel& model, ModelQueue& queue, const BatchLimits& limits, bool is_alone,
                         const LoopEvents& events) {
  Continuations(model, queue, limits, is_alone, events).run();
}

}  // namespace shardline
