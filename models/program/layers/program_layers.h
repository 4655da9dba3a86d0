// A program as a model: its layers and the description of its parameters.
//
// A ProgramSplit describes what the ranks of a tensor-parallel group divide; each rank does the rest of the work
// itself, for all rows. With `optimize: "memory"` they divide the rows of borders, which a layer first gathers. Weight
// gradients are computed during BackwardInput. Of what a layer keeps, offloading and the counts of a running step
// include only its input and what our ops save (ops/own_op.h), not what ATen's operators save; the plan takes all kept
// bytes from a trace. Generation has no cache.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/model/model_spec.h"
#include "models/program/program.h"
#include "models/program/program_split.h"

namespace shardline {

// ModelSpec::family of programs from a file, and of modules of the running program.
inline constexpr const char* kExportedFamily = "exported program";
inline constexpr const char* kTracedFamily = "traced module";

// Runs each distinct layer once with the archive's weights, on sequences of this length, from which costs of other
// sizes are extrapolated. In files, parameters have the program's names; full names are "embedding." and "head."
// followed by these, and for blocks the program's own. Throws a ConfigError if a microbatch does not provide an
// argument of the program, if a layer fails on these sequences, and for dropout that cannot be made the same in every
// layout. split: null if every rank has everything.
ModelSpec spec_of_program(const std::shared_ptr<const Program>& program, int64_t traced_length,
                          std::shared_ptr<const ProgramSplit> split = nullptr);

}  // namespace shardline
