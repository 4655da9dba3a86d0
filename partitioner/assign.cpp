#include "partitioner/assign.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace shardline {

std::vector<int> assign_stages(const std::vector<double>& layer_costs, int stages) {
  const size_t n = layer_costs.size(), p = static_cast<size_t>(stages);
  if (n < p)
    throw ConfigError(cat("pipeline_parallel_degree is ", stages, ", but the model has only ", n,
                          " layers to place (embedding, blocks and head); use at most ", n, " stages"));
  std::vector<double> before(n + 1);
  std::partial_sum(layer_costs.begin(), layer_costs.end(), before.begin() + 1);
  // best[s][i]: the least possible cost of the most expensive of the last p - s stages over layers i .. n-1.
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(p + 1, std::vector<double>(n + 1, kNever));
  std::vector<std::vector<size_t>> end(p, std::vector<size_t>(n + 1, 0));
  best[p][n] = 0;
  for (size_t s = p; s-- > 0;)
    for (size_t i = n; i-- > 0;)
      for (size_t j = i + 1; j <= n; ++j) {
        const double cost = std::max(before[j] - before[i], best[s + 1][j]);
        if (cost < best[s][i]) {  // the smallest j wins: earlier stages lighter
          best[s][i] = cost;
          end[s][i] = j;
        }
      }
  std::vector<int> stage(n);
  for (size_t s = 0, i = 0; s < p; ++s)
    for (const size_t j = end[s][i]; i < j; ++i) stage[i] = static_cast<int>(s);
  return stage;
}

}  // namespace shardline
