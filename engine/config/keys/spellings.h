// Keys that mean the same in the terms of transformers, SageMaker's library and shardline; they must not contradict
// each other.
#pragma once
#include "core/files/json_reader.h"
#include "engine/config/keys/options.h"

namespace shardline {

// Reports contradictions at the sections `training` and `smp_options`, each of which was read without a mistake.
void check_spellings(const Config& config, JsonReader& training, JsonReader& smp);

}  // namespace shardline
