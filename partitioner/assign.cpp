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

std::vector<int> assign_chunks(const std::vector<double>& layer_costs, const std::vector<int>& stage_of_chunk) {
  const size_t chunks = stage_of_chunk.size();
  const auto stages = static_cast<size_t>(*std::max_element(stage_of_chunk.begin(), stage_of_chunk.end())) + 1;
  if (layer_costs.size() < chunks && stages < chunks)
    throw ConfigError(cat("the schedule cuts the model into ", chunks, " chunks for ", stages,
                          " stages, but the model has only ", layer_costs.size(),
                          " layers to place (embedding, blocks and head); use fewer stages or a lower "
                          "virtual_pipeline_degree, or a schedule with one chunk a stage, such as \"interleaved\""));
  auto chunk_of_layer = assign_stages(layer_costs, static_cast<int>(chunks));
  if (chunks == stages) return chunk_of_layer;

  // What matters: the most expensive stage; then the chunks' squares, which are least where chunks are equal.
  const auto judge = [&] {
    std::vector<double> of_stage(stages), of_chunk(chunks);
    for (size_t layer = 0; layer < layer_costs.size(); ++layer)
      of_chunk[static_cast<size_t>(chunk_of_layer[layer])] += layer_costs[layer];
    for (size_t chunk = 0; chunk < chunks; ++chunk)
      of_stage[static_cast<size_t>(stage_of_chunk[chunk])] += of_chunk[chunk];
    return std::pair(*std::max_element(of_stage.begin(), of_stage.end()),
                     std::inner_product(of_chunk.begin(), of_chunk.end(), of_chunk.begin(), 0.0));
  };
  std::vector<size_t> layers(chunks);
  for (const int chunk : chunk_of_layer) ++layers[static_cast<size_t>(chunk)];
  auto best = judge();
  // Gives `layer` to the neighbouring chunk if that helps.
  const auto move = [&](size_t layer, int to) {
    const int from = chunk_of_layer[layer];
    if (layers[static_cast<size_t>(from)] == 1) return false;
    chunk_of_layer[layer] = to;
    const auto cost = judge();
    if (cost >= best) {
      chunk_of_layer[layer] = from;
      return false;
    }
    best = cost;
    --layers[static_cast<size_t>(from)];
    ++layers[static_cast<size_t>(to)];
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t layer = 1; layer < layer_costs.size(); ++layer) {
      const int before = chunk_of_layer[layer - 1], after = chunk_of_layer[layer];
      if (before != after) moved |= move(layer, before) || move(layer - 1, after);
    }
  }
  return chunk_of_layer;
}

}  // namespace shardline
