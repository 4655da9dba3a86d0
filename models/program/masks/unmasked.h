// Finds masks that a program materialises although attention has faster forms of them.
#pragma once
#include <memory>

#include "models/program/program.h"

namespace shardline {

// The program with Program::unmasked, if the masks of some of its attentions depend only on sizes and, without padding,
// are causal or hide nothing. Determined by computing the masks of samples of several lengths.
std::shared_ptr<const Program> with_unmasked(const std::shared_ptr<const Program>& program, int64_t longest);

}  // namespace shardline
