// Runs a user's torch::nn module by itself before training starts, to find out what it returns, computes and keeps, and
// whether it can be a layer at all. Recomputation runs a module's forward a second time, and other layouts run it on
// other microbatches. A module whose result would change in either case is refused by name, because training would not
// notice.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/layer_work.h"

namespace torch::nn {
class AnyModule;
}

namespace shardline {

class TorchSeed;

// Measurements of one microbatch in the dtype of the input.
struct ModuleTrace {
  std::vector<int64_t> output;    // sizes of the result
  std::vector<Product> products;  // of the forward pass
  int64_t made_bytes = 0;         // of the results of all ops in the forward pass
  // Kept between forward and backward: what the autograd graph holds, without the input and the parameters.
  int64_t kept_bytes = 0;
  // Peak of the bytes that the ops of a pass use, beyond what exists when it begins.
  int64_t forward_bytes = 0, backward_bytes = 0;
};

inline constexpr int64_t kMixingSamples = 8;

// input: [batch, length] ids or [batch, length, features], at least two samples. Throws ConfigError that names the
// module if its forward in training mode
//   - is not a function of one tensor that returns one tensor [batch, length, features];
//   - changes its input, a parameter, a buffer, or a tensor that its gradient needs;
//   - draws from torch's random generator;
//   - returns another result when it runs again;
//   - makes a sample's result depend on the other samples of its microbatch, on their number or on its place among
//     them, as far as microbatches of input.size(0) samples, or of kMixingSamples if that is more, show it;
//   - does not depend on its input at all.
ModuleTrace trace_module(const std::string& name, torch::nn::AnyModule& module, const at::Tensor& input,
                         TorchSeed& seed);

}  // namespace shardline
