// The maximum length of a program's samples.
#pragma once
#include <cstdint>

#include "models/program/program.h"

namespace shardline {

// The length of the longest samples whose positions are in all tables of the program, determined by computing the
// positions of samples of several lengths; the largest 32-bit number if no table limits it.
int64_t most_positions(const Program& program);

}  // namespace shardline
