#include "optim/learning_rate.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace shardline {

double learning_rate(const LearningRateOptions& o, int64_t step) {
  const auto done = static_cast<double>(step - 1), warmup = static_cast<double>(o.warmup_steps),
             total = static_cast<double>(o.total_steps);
  if (o.type == "constant") return o.peak;
  if (done < warmup) return o.peak * done / std::max(1.0, warmup);
  if (o.type == "constant_with_warmup") return o.peak;
  const double left = std::max(0.0, total - done) / std::max(1.0, total - warmup);
  if (o.type == "linear") return o.peak * left;
  if (o.type == "cosine") return o.peak * std::max(0.0, 0.5 * (1 + std::cos(M_PI * (1 - left))));
  throw InvariantError("unknown learning-rate schedule " + o.type);
}

}  // namespace shardline
