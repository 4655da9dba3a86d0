// What updates the parameters of a rank's stage. Optimizers work on flat ranges; what they keep is as long as what they
// update, so that a rank with a part of a range keeps a part of the state.
#pragma once
#include <memory>

#include "optim/flat/stage_parameters.h"
#include "optim/update/optimizer_options.h"

namespace shardline {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates the values of all ranges from their gradients, which are complete and are left clipped. gradient_factor:
  // what the gradients are multiplied with first (clip_factor). All ranks that hold parts of a parameter take part.
  // Gradients of a range are not touched before take_gradients, nor its values after hand_on.
  virtual void step(double learning_rate, double gradient_factor) = 0;
};

// The parameters must outlive it. Throws ConfigError where the device on which they are trained lacks this optimizer.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, StageParameters& parameters);

// Before a range is updated: its gradients are there, times `factor`, each element then limited to +- max_value (0: no
// limit).
void take_gradients(const TrainedRange& range, double factor, double max_value);
// After its update.
void hand_on(const TrainedRange& range);

}  // namespace shardline
