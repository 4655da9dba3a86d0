// Optimizers of a program's own, by name: rules that update each element from its gradient and its own state, which
// makes them work on flat ranges, sharded or whole.
#pragma once
#include <map>

#include "optim/update/optimizer.h"

namespace shardline {

// The tensors of an update, [elements] each, which the rule changes in place, except for the gradients.
struct ElementUpdate {
  at::Tensor values, gradients;
  std::vector<at::Tensor> states;  // in the order of ElementRule::states
  double learning_rate = 0;
  double weight_decay = 0;  // 0 for parameters that do not decay
  int64_t step = 1;         // updates so far, with this one
  const OptimizerOptions& options;
};

struct ElementRule {
  std::vector<std::string> states;  // names, as checkpoints have them; zeros before the first update
  std::function<void(const ElementUpdate&)> update;
};

// Call it before a config is read. Throws ConfigError if the name has been added before.
void add_optimizer(const std::string& name, ElementRule rule);
const std::map<std::string, ElementRule>& added_optimizers();
// The rule of an optimizer whose kind is OptimizerOptions::Kind::added.
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
