// Runs a user's torch::nn module by itself before training starts, to determine what it returns, computes and keeps,
// and whether it can be a layer at all. Recomputation runs a module's forward a second time, and other layouts run it
// on other microbatches. A module whose result would change in either case is refused by name, because training would
// not notice.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "models/graph/pass_trace.h"

namespace torch::nn {
class AnyModule;
}

namespace shardline {

class TorchSeed;

inline constexpr int64_t kMixingSamples = 8;

// input: [batch, length] ids or [batch, length, features], at least two samples. Throws a ConfigError that names the
// module if its forward in training mode
//   - is not a function from one tensor to one tensor [batch, length, features];
//   - changes its input, a parameter, a buffer, or a tensor that its gradient needs;
//   - draws from torch's random generator;
//   - returns a different result when it runs again;
//   - makes a sample's result depend on the other samples of its microbatch, on their number or on its place among
//     them, as far as this shows with microbatches of input.size(0) or, if that is more, kMixingSamples samples;
//   - does not depend on its input at all.
PassTrace trace_module(const std::string& name, torch::nn::AnyModule& module, const at::Tensor& input, TorchSeed& seed);

}  // namespace shardline
