// Reads checkpoints: finds one that is intact, and fills parameters and optimizer from it, whatever the layout of the
// run that wrote it and of the run that reads it.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/long_work.h"
#include "engine/checkpoint/checkpoint_directory.h"
#include "engine/checkpoint/trainer_state.h"
#include "models/files/hf_directory.h"
#include "optim/update/optimizer.h"

namespace shardline {

// Collective over `world`: compares every byte of the checkpoint with its manifest; each rank reads a part. Returns
// what is damaged, the same on all ranks; empty if it is intact. `show` receives the bytes of all ranks.
std::vector<std::string> verify_checkpoint(const std::string& path, Communicator& world,
                                           const LongWork::Show& show = {});

// Collective over `world`: the newest checkpoint of the directory that is intact. `skipped` gets a line for each
// damaged one. Unset if there is none.
std::optional<std::string> newest_intact_checkpoint(const std::string& directory, Communicator& world,
                                                    std::vector<std::string>& skipped, const LongWork::Show& show = {});

TrainerState read_trainer_state(const std::string& checkpoint);

// Fills this rank's parts of the optimizer's state. Throws DataError if the checkpoint lacks one of them or it has
// another shape: it was saved without states, or with another optimizer.
void read_optimizer_state(const std::string& checkpoint, StageParameters& parameters, Optimizer& optimizer,
                          const OptimizerOptions& options, const ModelSpec& spec);

}  // namespace shardline
