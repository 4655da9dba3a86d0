// A module of a C++ program as a program that can be cut into layers and trained like an exported one.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/program/pt2_archive.h"

namespace torch::nn {
class Module;
}

namespace shardline {

// A module, and what it computes from its arguments by name, [batch, length] int64: the loss, and then the logits if
// there are any. `run` is called at several sizes.
struct TracedInstance {
  std::shared_ptr<torch::nn::Module> module;
  std::function<std::vector<at::Tensor>(const std::map<std::string, at::Tensor>& arguments)> run;
};

struct TracedModel {
  std::string name;
  // Makes the module, with initial values that may come from torch's generator, which is seeded before. Every rank
  // calls it and must get the same module. No base class is needed, and nothing has to be changed in it.
  std::function<TracedInstance()> make;
  std::vector<std::string> arguments = {"input_ids", "labels"};
  int64_t vocab_size = 0;  // of input_ids and labels
};

// Parameters and buffers have the names that the module gives them; weights are its values under this seed. Throws a
// ConfigError that begins with the model's name for what cannot be traced (see trace_graph).
Pt2Archive traced_archive(const TracedModel& model, uint64_t seed);

}  // namespace shardline
