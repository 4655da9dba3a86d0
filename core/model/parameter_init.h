// Initial values that belong to the model, not to the layout: each rank makes exactly its slice of the same numbers.
#pragma once
#include "core/model/layer.h"

namespace shardline {

// Fills parameter.value, this rank's slice. `number` is the parameter's place among the model's parameters.
void init_parameter(Parameter& parameter, uint32_t number, uint64_t seed, int t, int t_degree);

}  // namespace shardline
