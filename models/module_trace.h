// Runs a user's torch::nn module by itself before anything is trained: what it makes, computes and keeps, and whether a
// layer may be made of it at all. Recomputation runs a module's forward again, and other layouts run it on other
// microbatches; what would be wrong then is refused here, by the module's name, and not noticed by nobody later.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/layer_work.h"

namespace torch::nn {
class AnyModule;
}

namespace shardline {

class TorchSeed;

// One microbatch, in the dtype of the input.
struct ModuleTrace {
  std::vector<int64_t> output;    // sizes of the result
  std::vector<Product> products;  // of the forward pass
  int64_t made_bytes = 0;         // of all results of ops in the forward pass
  // From forward to backward: what its graph holds, without its input and its parameters.
  int64_t kept_bytes = 0;
  // The most that ops of a pass have in use at a time, beyond what it finds when it begins.
  int64_t forward_bytes = 0, backward_bytes = 0;
};

// input: [batch, length] ids or [batch, length, features], two samples or more. Throws ConfigError, naming the module,
// where its forward in training
//   - is not a function of one tensor that returns one tensor [batch, length, features];
//   - changes its input, a parameter, a buffer, or a tensor that its gradient needs;
//   - draws from torch's random generator;
//   - gives another result when it runs again;
//   - lets a sample's result depend on the others of the microbatch, or does not depend on its input at all.
ModuleTrace trace_module(const std::string& name, torch::nn::AnyModule& module, const at::Tensor& input,
                         TorchSeed& seed);

}  // namespace shardline
