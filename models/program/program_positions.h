// How long the samples of a program may be.
#pragma once
#include <cstdint>

#include "models/program/program.h"

namespace shardline {

// The longest samples whose positions are in all tables of the program, found by computing the positions of samples of
// several lengths; the largest 32-bit number if no table bounds them.
int64_t most_positions(const Program& program);

}  // namespace shardline
