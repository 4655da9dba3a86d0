#include "models/program/layers/program_positions.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "models/program/program_inputs.h"

namespace shardline {
namespace {

constexpr int64_t kSamples = 2;

// Whether samples of this length find all their rows in the table.
bool fits(const Program& program, const ProgramLookup& lookup, int64_t length) {
  const int64_t samples = program.fixed_samples == 1 ? 1 : kSamples;
  const Microbatch rows = sample_batch(program, samples, length, length, 0);
  const ProgramBatch batch(program, rows);
  std::vector<c10::IValue> inputs;
  for (const int value : lookup.indices.inputs) {
    const GraphInput* input = program.input_of(value);
    if (input->kind == GraphInput::Kind::user && !is_given(program.given_to(*input), program.use))
      return true;  // refused elsewhere
    inputs.push_back(input->kind == GraphInput::Kind::user ? program_argument(*input, batch) : program.constant(value));
  }
  try {
    const Interpreter interpreter(program.graph(), lookup.indices, at::kFloat, at::kCPU);
    const at::Tensor indices = interpreter.run(std::move(inputs), nullptr)[0].toTensor();
    const bool is_whole = indices.dim() == 0 || indices.size(-1) == length || indices.size(-1) == 1;
    return is_whole && indices.max().item<int64_t>() < lookup.rows;
  } catch (const RunError&) {  // a call does not support this length
    return false;
  }
}

}  // namespace

int64_t most_positions(const Program& program) {
  const at::NoGradGuard no_grad;
  // If all lengths are fixed, tables of positions do not limit them.
  if (program.fixed_source() > 0 && (!program.has_target() || program.fixed_target() > 0))
    return program.fixed_source() + program.fixed_target();
  int64_t most = std::numeric_limits<int32_t>::max();
  for (const auto& lookup : program.lookups) {
    int64_t longest = 1, too_long = lookup.rows + 1;
    if (fits(program, lookup, too_long)) continue;  // the table is not looked up by position
    while (longest + 1 < too_long) {
      const int64_t middle = longest + (too_long - longest) / 2;
      (fits(program, lookup, middle) ? longest : too_long) = middle;
    }
    most = std::min(most, longest + program.source_rows());
  }
  return most;
}

}  // namespace shardline
