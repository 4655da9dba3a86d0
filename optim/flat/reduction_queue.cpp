#include "optim/flat/reduction_queue.h"

#include <algorithm>

#include "optim/flat/reduction_overlap.h"

namespace shardline {

void ReductionQueue::add_layer(int layer, const std::string& name, const std::vector<FlatGradients*>& gradients) {
  layers_[layer].name = name;
  for (auto* segment : gradients)
    if (segment->segment().length > 0) layers_[layer].by_deferred[segment->segment().deferred].push_back(segment);
}

void ReductionQueue::open(int layer, bool deferred) {
  const auto in_the_way = [&](const Reduction& reduction) {
    return reduction.of_microbatch &&
           must_end_before(sharding_, reduction.gradients->whole().numel(), reduction.layer, layer, last_closed_);
  };
  while (std::any_of(under_way_.begin(), under_way_.end(), in_the_way)) complete_oldest();
  for (auto* gradients : layers_[layer].by_deferred[deferred]) gradients->open();
}

void ReductionQueue::close(int layer, bool deferred, bool last) {
  last_closed_ = layer;
  const char* name = layers_[layer].name.c_str();
  for (auto* gradients : layers_[layer].by_deferred[deferred]) {
    if (gradients->reduces_microbatches())
      under_way_.push_back({layer, gradients, gradients->reduce_microbatch(name), true, last});
    else if (last)
      start_step_reduction(layer, *gradients);
  }
}

void ReductionQueue::start_step_reduction(int layer, FlatGradients& gradients) {
  if (auto work = gradients.reduce_step(layers_[layer].name.c_str()))
    under_way_.push_back({layer, &gradients, std::move(work), false, true});
}

void ReductionQueue::complete_oldest() {
  const Reduction reduction = std::move(under_way_.front());
  under_way_.pop_front();
  reduction.work->wait();
  if (!reduction.of_microbatch) return;
  reduction.gradients->take_reduced();
  if (reduction.last) start_step_reduction(reduction.layer, *reduction.gradients);
}

void ReductionQueue::settle() {
  const auto of_microbatch = [](const Reduction& reduction) { return reduction.of_microbatch; };
  while (std::any_of(under_way_.begin(), under_way_.end(), of_microbatch)) complete_oldest();
}

void ReductionQueue::finish() {
  while (!under_way_.empty()) complete_oldest();
}

}  // namespace shardline
