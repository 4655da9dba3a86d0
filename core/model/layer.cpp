#include "core/model/layer.h"

namespace shardline {

int64_t border_rows(int64_t tokens, int t_degree, bool sequence_parallel) {
  return sequence_parallel ? (tokens + t_degree - 1) / t_degree : tokens;
}

std::vector<int64_t> bind_shape(const BorderTensor& tensor, int64_t rows) {
  auto shape = tensor.shape;
  for (auto& size : shape)
    if (size == BorderTensor::kRows) size = rows;
  return shape;
}

}  // namespace shardline
