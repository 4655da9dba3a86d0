// The loop of the model's thread: takes items that requests wait for from the queue, and computes them in batches.
#pragma once
#include <functional>

#include "engine/serve/model_queue.h"
#include "engine/serve/rank_model.h"

namespace shardline {

struct LoopEvents {
  std::function<bool()> is_over;  // asked several times per second
  // Called for each pass through the model, with its numbers of examples or sequences and of tokens.
  std::function<void(int64_t items, int64_t tokens)> computed;
};

// Both return when events.is_over() does. If the model throws in a pass, the items of this pass fail; if there are
// several ranks, which may no longer agree, the exception is passed on.
void serve_examples(RankModel& model, ModelQueue& queue, const BatchLimits& limits, bool is_alone,
                    const LoopEvents& events);
// Sequences begin and end at any time: each pass contains the prompts of new sequences and one token of each other.
void serve_continuations(RankModel& model, ModelQueue& queue, const BatchLimits& limits, bool is_alone,
                         const LoopEvents& events);

}  // namespace shardline
