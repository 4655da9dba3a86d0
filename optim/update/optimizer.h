// Updates the parameters of a rank's stage. Optimizers work on flat ranges; their state is as long as the values they
// update, so that a rank with a part of a range keeps a part of the state.
#pragma once
#include <memory>

#include "optim/flat/stage_parameters.h"
#include "optim/update/optimizer_options.h"

namespace shardline {

// What gradients are multiplied with before an update: a number, or one on an accelerator that the host does not know.
struct GradientFactor {
  GradientFactor(double known_) : known(known_) {}
  GradientFactor(at::Tensor on_device_) : on_device(std::move(on_device_)) {}
  double known = 1;      // if the other is undefined
  at::Tensor on_device;  // [], fp32
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates the values of all ranges from their gradients, which are complete and may be clipped in place.
  // gradient_factor: multiplies the gradients first (clip_factor). All ranks that hold parts of a parameter take part.
  // Gradients of a range are not used before take_gradients, nor its values after hand_on.
  virtual void step(double learning_rate, const GradientFactor& gradient_factor) = 0;
};

// The parameters must outlive the result. Throws ConfigError if their device does not support this optimizer.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, StageParameters& parameters);

// Call it before a range is updated: waits for its gradients, multiplies them by `factor`, then limits each element to
// +- max_value (0: no limit).
void take_gradients(const TrainedRange& range, const GradientFactor& factor, double max_value);
// Call it after the update.
void hand_on(const TrainedRange& range);

}  // namespace shardline
