// What the modules of include/shardline/nn.h declare about the division of a model.
#pragma once
#include <vector>

#include "models/program/pt2_archive.h"

namespace torch::nn {
class Module;
}

namespace shardline {

// The marks of all such modules in this one. Parameters have the names that the module gives them.
std::vector<SplitMark> split_marks(const torch::nn::Module& module);

}  // namespace shardline
