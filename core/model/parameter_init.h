// Initial values depend on the model, not on the layout: each rank generates exactly its slice of the same numbers.
#pragma once
#include "core/model/layer.h"

namespace shardline {

// Fills parameter.value, this rank's slice. `number` is the parameter's index in the model.
void init_parameter(Parameter& parameter, uint32_t number, uint64_t seed, int t, int t_degree);

}  // namespace shardline
