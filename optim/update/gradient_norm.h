// The global gradient norm: over all logical parameters of the model, each counted once however it is split, copied or
// dealt out. Squares are added up to small sums in fp64, and these without any rounding (core/numbers/exact_sum.h), so
// every layout that leaves the elements of a parameter on a rank in their order gets equal bits, whichever rank adds
// which part.
#pragma once
#include "optim/flat/stage_parameters.h"

namespace shardline {

// Collective over the world; call it after finish_gradients. Every rank gets the norm; it is not finite if a gradient
// is not.
double gradient_norm(const StageParameters& parameters);

// torch's rule (clip_grad_norm_): max_norm / (norm + 1e-6) if that is below 1; max_norm 0 means no clipping.
double clip_factor(double norm, double max_norm);

}  // namespace shardline
