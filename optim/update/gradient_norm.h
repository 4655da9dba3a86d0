// The global gradient norm over all logical parameters of the model, each counted once, however it is split, copied or
// distributed. Squares are added up in short fp64 sums, which are then added without any rounding
// (core/numbers/exact_sum.h). So every layout that keeps the elements of a parameter in order on a rank gets equal
// bits, whichever rank adds which part.
#pragma once
#include <memory>
#include <optional>

#include "core/device/accelerator.h"
#include "optim/flat/stage_parameters.h"
#include "optim/update/cuda/device_updates.h"
#include "optim/update/optimizer.h"

namespace shardline {

// The norm of one step's gradients. On an accelerator it stays in device memory until value() is called, so that the
// host can queue the update before it waits.
class GradientNorm {
 public:
  // Collective over the world; call it after finish_gradients.
  explicit GradientNorm(const StageParameters& parameters);

  // Equal on all ranks; not finite if some gradient is not.
  double value();
  // Returns the factor for the gradients, which are `scale` times the true gradients: it undoes the scale and limits
  // the norm of the true gradients to max_norm (0: no clipping). Waits for the device if updates need a known number.
  GradientFactor factor(double scale, double max_norm);

 private:
  const DeviceUpdates* kernels_;  // null if the sum of squares is not on the device
  bool updates_on_host_;
  at::Tensor words_;  // the sum's words: ExactSum::kWords, int64
  std::unique_ptr<HostValues> arriving_;
  std::optional<double> known_;
};

// torch's rule (clip_grad_norm_): max_norm / (norm + 1e-6) if this is below 1; max_norm 0 means no clipping.
double clip_factor(double norm, double max_norm);

}  // namespace shardline
