// Adam and AdamW on flat ranges, as torch.optim computes them.
#pragma once
#include "optim/update/optimizer.h"

namespace shardline {

inline constexpr const char *kFirstMoment = "exp_avg", *kSecondMoment = "exp_avg_sq";

class Adam : public Optimizer {
 public:
  // options.kind must be adamw or adam.
  Adam(std::vector<TrainedRange> ranges, const OptimizerOptions& options);
  void step(double learning_rate, const GradientFactor& gradient_factor) override;
  std::vector<StatePart> state() override;

 private:
  bool update_at_once(double learning_rate, const GradientFactor& gradient_factor);

  struct State {
    TrainedRange range;
    at::Tensor first, second;  // moments [elements]
  };
  std::vector<State> states_;
  OptimizerOptions options_;
};

}  // namespace shardline
