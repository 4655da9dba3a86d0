// The thread that has the model: takes what requests wait for from the queue and computes it together.
#pragma once
#include <functional>

#include "engine/serve/model_queue.h"
#include "engine/serve/rank_model.h"

namespace shardline {

struct LoopEvents {
  std::function<bool()> is_over;  // asked several times per second
  // A pass through the model: examples or sequences, tokens.
  std::function<void(int64_t items, int64_t tokens)> computed;
};

// Both return when events.is_over() does. An exception in the model fails the items of its pass; where there are
// several ranks, which may no longer agree, it is thrown.
void serve_examples(RankModel& model, ModelQueue& queue, const BatchLimits& limits, bool is_alone,
                    const LoopEvents& events);
// Sequences begin and end at any time: each pass has the prompts of new ones and one token of each that goes on.
void serve_continuations(RankModel& model, ModelQueue& queue, const BatchLimits& limits, bool is_alone,
                         const LoopEvents& events);

}  // namespace shardline
