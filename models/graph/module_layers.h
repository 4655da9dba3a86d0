// A model made of a user's own torch::nn modules. Each module becomes a layer that is placed on a stage, recomputed and
// reduced like those of built-in families.
//
// Every rank of a tensor-parallel group holds the whole module and does the same work, which requires `optimize:
// "speed"`. The module's parameters become views of the rank's flat buffers. Autograd computes its weight gradients
// during BackwardInput, so BackwardWeight has nothing to do for them in any schedule. Offloading does not move what the
// module's own ops save, and a running step counts only its input as kept; the plan takes kept bytes from the trace.
// The module has no cache in generation.
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
  std::string name;  // the layer's name, such as "h.0"
  // Creates the module. Its initial values may come from torch's generator, which is seeded before each call, and must
  // not depend on anything else. Called often, on every rank; must create the same module each time.
  std::function<torch::nn::AnyModule()> make;
  // Parameters tied to another layer's: their names, and the full names there.
  std::map<std::string, std::string> ties;
};

// Makes each module of a Sequential a layer, in order: "prefix.0", "prefix.norm". A parameter that several of them
// share is tied. Throws ConfigError for a class derived from Sequential.
std::vector<PlainModule> modules_of(const std::string& prefix,
                                    const std::function<std::shared_ptr<torch::nn::SequentialImpl>()>& make);

struct ModuleModel {
  // What the last module predicts: the token after each token, or something about each sample, given by its result at
  // the first position.
  enum class Predicts { next_tokens, samples };

  std::string name = "";  // the family's name
  int64_t vocab_size = 0, max_positions = 0;
  // The first module takes ids [batch, length] int64, or numbers [batch, length, features] if `features` is not 0. Each
  // module returns [batch, length, features], the last one `outputs` features, or logits over the vocabulary if that is
  // 0. All modules in between are blocks.
  std::vector<PlainModule> modules;
  int64_t features = 0, outputs = 0;
  Predicts predicts = Predicts::next_tokens;
  // See models/graph/row_losses.h; empty: cross_entropy, or squared_error if labels are numbers.
  std::string loss = "";
  // Sizes of the microbatches that are traced; costs of other sizes are extrapolated from these.
  int64_t microbatch = 2, length = 1;
};

// Runs each module once (see models/graph/module_trace.h). Throws a ConfigError that names the module. The spec's
// initial values only have the scale of the modules' own, which values_of_modules fills in.
ModelSpec spec_of_modules(const ModuleModel& model);

// Fills a parameter with its module's initial value; leaves parameters that belong to no module unchanged. Values
// depend on the seed and the module's place in the model, so every layout starts with the same values. Pass it to
// StageParameters::fill_values, because sharded values have memory only there. It creates a module once for all of its
// parameters that are filled in succession.
std::function<void(Parameter&)> values_of_modules(const ModuleModel& model, uint64_t seed);

}  // namespace shardline
