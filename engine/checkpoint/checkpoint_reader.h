// Reads a complete checkpoint: fills the optimizer from it, whatever the layout of the run that wrote it and of the run
// that reads it.
#pragma once
#include <string>

#include "engine/checkpoint/trainer_state.h"
#include "models/files/hf_directory.h"
#include "optim/update/optimizer.h"

namespace shardline {

// checkpoint: the directory of a checkpoint or of a part of one. Throws DataError.
TrainerState read_trainer_state(const std::string& checkpoint);

// Fills this rank's parts of the optimizer's state. Throws DataError if one of them is missing in the checkpoint or has
// another shape, because the checkpoint was saved without states or with another optimizer.
void read_optimizer_state(const std::string& checkpoint, StageParameters& parameters, Optimizer& optimizer,
                          const OptimizerOptions& options, const ModelSpec& spec);

}  // namespace shardline
