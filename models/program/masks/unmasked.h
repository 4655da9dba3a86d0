// Masks that a program materialises although attention has faster forms of them.
#pragma once
#include <memory>

#include "models/program/program.h"

namespace shardline {

// The program with Program::unmasked, if some of its attentions have masks that follow from sizes alone and that are
// causal, or hide nothing, wherever nothing is padded. Found by computing the masks of samples of several lengths.
std::shared_ptr<const Program> with_unmasked(const std::shared_ptr<const Program>& program, int64_t longest);

}  // namespace shardline
