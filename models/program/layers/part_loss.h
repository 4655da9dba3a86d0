// The loss of a program, from the values that its last layer has computed.
#pragma once
#include <ATen/core/ivalue.h>

#include <vector>

#include "core/model/layer.h"
#include "models/program/layers/part_run.h"
#include "models/program/program_inputs.h"

namespace shardline {

struct LossSettings {
  TensorParallel tp;  // without sequence parallelism
  at::ScalarType floating = at::kFloat;
  bool in_half = false;         // half-precision values become fp32
  Parameter* weight = nullptr;  // for a head that was moved into the loss (moved_head.h); null: none was
  Parameter* bias = nullptr;    // likewise
};

// The end of the last layer (summed_loss): the sum of the losses of all labels, whose number is counted as in the data.
// made: the values of run.whole().outputs, which contain those of the program's loss.
Border loss_of_part(const PartRun& run, const std::vector<c10::IValue>& made, const ProgramBatch& batch,
                    const LossSettings& settings, MicrobatchContext& context);

}  // namespace shardline
