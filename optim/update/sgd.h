// Stochastic gradient descent with momentum on flat ranges, as torch.optim.SGD computes it.
#pragma once
#include "optim/update/optimizer.h"

namespace shardline {

inline constexpr const char* kMomentum = "momentum_buffer";

class Sgd : public Optimizer {
 public:
  Sgd(std::vector<TrainedRange> ranges, const OptimizerOptions& options);
  void step(double learning_rate, const GradientFactor& gradient_factor) override;
  std::vector<StatePart> state() override;

 private:
  struct State {
    TrainedRange range;
    at::Tensor momentum;  // [elements]; undefined without momentum
  };
  std::vector<State> states_;
  OptimizerOptions options_;
};

}  // namespace shardline
