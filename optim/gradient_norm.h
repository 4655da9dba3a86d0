// The global gradient norm: over all logical parameters of the model, each counted once however it is split or copied.
// The squared norm is kept per logical parameter in fp64 and added in model order, so that a pipeline and one process
// get equal bits.
#pragma once
#include "optim/stage_parameters.h"

namespace shardline {

// Collective over the MP group (all ranks of one replica); the gradients are finished. Every rank gets the norm.
double gradient_norm(const StageParameters& parameters);

// torch's rule (clip_grad_norm_): max_norm / (norm + 1e-6) where that is below 1; max_norm 0 clips nothing.
double clip_factor(double norm, double max_norm);

}  // namespace shardline
