// AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101) on flat ranges, as torch.optim.AdamW computes it.
#pragma once
#include "optim/stage_parameters.h"

namespace shardline {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;  // only on ranges that decay
};

class AdamW {
 public:
  AdamW(std::vector<TrainedRange> ranges, const AdamWOptions& options);
  // gradient_factor: what the gradients are multiplied with first (clipping).
  void step(double learning_rate, double gradient_factor);

 private:
  struct State {
    TrainedRange range;
    at::Tensor first, second;  // moments [elements]
  };
  std::vector<State> states_;
  AdamWOptions options_;
  int64_t steps_ = 0;
};

}  // namespace shardline
