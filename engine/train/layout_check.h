// Compares a layout's training with that of the same model in one process.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "engine/data/dataset/batch_source.h"
#include "engine/train/trainer.h"

namespace shardline {

// The largest difference of one kind.
struct LayoutDifference {
  std::string what;  // "gradient"
  double largest = 0;
  double limit = 0;   // for float64, in which a difference is either rounding or a mistake
  std::string where;  // the parameter or the step
  bool is_within() const { return largest <= limit; }  // false for NaN
};

// A trainer whose parameters are set, and its data.
struct CheckedRun {
  RankTrainer& trainer;
  BatchSource& data;
};

// Trains `steps` steps with both and compares, in this order: every parameter's gradient of step 1 before clipping, the
// difference divided by the largest gradient of the tensor, or of all tensors if the tensor's own is zero except for
// rounding; the norm of that gradient and the loss of each step, relative; and the change of every parameter over all
// steps, relative in L2 and without elements whose gradient is zero except for rounding, which an optimizer may turn
// into steps of any size. Collective over `world`. Only its first rank has `one_process` and receives the result.
std::vector<LayoutDifference> compare_with_one_process(const CheckedRun& layout, const CheckedRun* one_process,
                                                       const ModelSpec& spec, int64_t steps, Communicator& world);

}  // namespace shardline
