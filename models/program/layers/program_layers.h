// A program as a model: its layers, and the description of its parameters.
//
// A ProgramSplit says what the ranks of a tensor-parallel group divide; the rest of the work each does for itself, with
// all rows. With `optimize: "memory"` they divide the rows of borders, which a layer gathers first.
// Autograd computes weight gradients during BackwardInput. Offloading does not move what the layers' ops save, and a
// running step counts only a layer's input as kept; the plan takes kept bytes from a trace. Nothing is cached in
// generation.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/model/model_spec.h"
#include "models/program/program.h"
#include "models/program/program_split.h"

namespace shardline {

// ModelSpec::family of programs that come from a file, and of those that are modules of the running program.
inline constexpr const char* kExportedFamily = "exported program";
inline constexpr const char* kTracedFamily = "traced module";

// Runs each distinct layer once with the archive's weights, on sequences of this length, from which costs of other
// sizes are scaled. Parameters have the names of the program in files; full names are "embedding." and "head." followed
// by these, and those of blocks are the program's own. Throws a ConfigError for a program whose arguments a microbatch
// does not give, and for dropout that cannot be made the same on every layout.
// split: null if every rank has everything.
ModelSpec spec_of_program(const std::shared_ptr<const Program>& program, int64_t traced_length,
                          std::shared_ptr<const ProgramSplit> split = nullptr);

}  // namespace shardline
