// A model of a user's own torch::nn modules: each becomes a layer that is placed on a stage, recomputed and reduced
// like those of the built-in families.
//
// A module is whole on every rank of a tensor-parallel group (all do the same work; needs `optimize: "speed"`). Its
// parameters become views into the rank's flat buffers. Its weight gradients come from autograd and are finished with
// BackwardInput: nothing of them waits for BackwardWeight, whatever the schedule. Moving activations out does not reach
// what its own ops save, and counts of kept bytes in a running step see only its input; the plan has them from the
// trace. It has no cache in generation.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/model/model_spec.h"

namespace torch::nn {
class AnyModule;
class SequentialImpl;
}  // namespace torch::nn

namespace shardline {

struct Parameter;

struct PlainModule {
  std::string name;  // of the layer: "h.0"
  // Makes the module, with its first values from torch's generator (which is seeded before) or from nowhere. Called
  // often, on every rank, and must make the same each time.
  std::function<torch::nn::AnyModule()> make;
  std::map<std::string, std::string> ties;  // its parameters that are those of another layer, by their full names there
};

// The modules of a Sequential in order: "prefix.0", "prefix.norm". Each is one layer with all that is in it. A
// parameter that several of them share is tied. Throws ConfigError for a class derived from Sequential.
std::vector<PlainModule> modules_of(const std::string& prefix,
                                    const std::function<std::shared_ptr<torch::nn::SequentialImpl>()>& make);

struct ModuleModel {
  std::string name;  // the family's
  int64_t vocab_size = 0, max_positions = 0;
  // The first gets ids [batch, length] int64, each returns [batch, length, features], the last logits over the
  // vocabulary, of which the loss of a causal language model is taken. All between are blocks.
  std::vector<PlainModule> modules;
  // Of the microbatches that will be trained: what is traced; other sizes are scaled from it.
  int64_t microbatch = 2, length = 1;
};

// Runs each module once (see models/graph/module_trace.h). Throws ConfigError, naming the module. The initial values
// that it states have only the scale of the modules' own; those come from values_of_modules.
ModelSpec spec_of_modules(const ModuleModel& model);

// Fills a parameter with the value that its module is made with; those that are no module's it leaves alone. Values
// follow from the seed and the module's place in the model, so that every layout starts with the same. For
// StageParameters::fill_values, since sharded values have memory only there. Makes a module once for all its parameters
// that follow one another.
std::function<void(Parameter&)> values_of_modules(const ModuleModel& model, uint64_t seed);

}  // namespace shardline
