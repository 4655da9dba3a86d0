// User-defined optimizers, by name: rules that update each element from its gradient and its own state, and therefore
// work on flat ranges, sharded or whole.
#pragma once
#include <map>

#include "optim/update/optimizer.h"

namespace shardline {

// The tensors of an update, [elements] each. The rule changes them in place, except for the gradients.
struct ElementUpdate {
  at::Tensor values, gradients;
  std::vector<at::Tensor> states;  // in the order of ElementRule::states
  double learning_rate = 0;
  double weight_decay = 0;  // 0 for parameters without decay
  int64_t step = 1;         // number of this update, from 1
  const OptimizerOptions& options;
};

struct ElementRule {
  std::vector<std::string> states;  // their names in checkpoints; states are zero before the first update
  std::function<void(const ElementUpdate&)> update;
};

// Must be called before a config is read. Throws ConfigError if the name is taken.
void add_optimizer(const std::string& name, ElementRule rule);
const std::map<std::string, ElementRule>& added_optimizers();
// The rule for options whose kind is OptimizerOptions::Kind::added.
const ElementRule& rule_of(const OptimizerOptions& options);

class AddedOptimizer : public Optimizer {
 public:
  AddedOptimizer(std::vector<TrainedRange> ranges, const OptimizerOptions& options);
  void step(double learning_rate, const GradientFactor& gradient_factor) override;
  std::vector<StatePart> state() override;

 private:
  struct State {
    TrainedRange range;
    std::vector<at::Tensor> tensors;  // [elements] each
  };
  ElementRule rule_;
  std::vector<State> states_;
  OptimizerOptions options_;
};

}  // namespace shardline
