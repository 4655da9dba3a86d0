// Maps a parameter's elements to the matrices that a factored optimizer uses: those of the Hugging Face file. A tensor
// [..., rows, columns] of the file has a vector of sums over columns, [..., rows], and one of sums over rows, [...,
// columns]. A fused query, key and value [3, heads, head_dim, hidden] corresponds to GPT-2's [hidden, 3 * hidden].
#pragma once
#include <cstdint>
#include <vector>

#include "core/model/model_spec.h"

namespace shardline {

// One tensor of the file. It fills a box of the logical parameter; each step along a logical dimension inside the box
// moves this many places in the vectors.
struct TensorFactors {
  int64_t elements = 0;
  bool factored = false;               // has at least two dimensions
  int64_t rows = 0, columns = 0;       // in each matrix
  int64_t matrices = 0;                // product of the leading dimensions
  std::vector<int64_t> begin, length;  // the box, by logical dimension
  std::vector<int64_t> row_step, column_step;

  int64_t row_places() const { return matrices * rows; }
  int64_t column_places() const { return matrices * columns; }
};

// Returns an entry for each source of the parameter, or one for the logical parameter itself if it has no source.
std::vector<TensorFactors> tensor_factors(const ParamSpec& spec);

}  // namespace shardline
