// The complete gradients of a stage, assembled from the shards that updates use, for comparing layouts.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "optim/flat/stage_parameters.h"

namespace shardline {

// The local part of every trained parameter's gradient on this rank's stage, by full name, in host memory. Elements
// that no rank's shard covers are -inf. Call it after finish_gradients; collective over the stage.
std::map<std::string, at::Tensor> whole_gradients(StageParameters& parameters, const ModelSpec& spec);

}  // namespace shardline
