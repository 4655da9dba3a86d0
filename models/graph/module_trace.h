// Runs a user's torch::nn module by itself before training starts, to find out what it returns, computes and keeps, and
// whether it can be a layer at all. Recomputation runs a module's forward a second time, and other layouts run it on
// other microbatches. A module whose result would change in either case is refused here by name, because training would
// not notice.
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

inline constexpr int64_t kMixingSamples = 8;

// input: [batch, length] ids or [batch, length, features], two samples or more. Throws ConfigError, naming the module,
// where its forward in training
//   - is not a function of one tensor that returns one tensor [batch, length, features];
//   - changes its input, a parameter, a buffer, or a tensor that its gradient needs;
//   - draws from torch's random generator;
//   - gives another result when it runs again;
//   - makes a sample's result depend on the other samples of its microbatch, on their number or on its place among
//     them, as far as microbatches of input.size(0) samples, or of kMixingSamples where that is more, show it;
//   - does not depend on its input at all.
ModuleTrace trace_module(const std::string& name, torch::nn::AnyModule& module, const at::Tensor& input,
                         TorchSeed& seed);

}  // namespace shardline
