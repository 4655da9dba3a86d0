// The elements of one tensor in one piece, as runs: stretches along which the row or column index increases by a fixed
// step. Sums over a tensor are computed run by run.
#pragma once
#include "optim/flat/stage_parameters.h"
#include "optim/update/tensor_factors.h"

namespace shardline {

class TensorRuns {
 public:
  struct Run {
    int64_t begin = 0, length = 0;  // in the range
    int64_t row = 0, column = 0;    // indexes of the first element in the vectors of sums
  };

  // t, t_degree: identify the slice of the parameter that the piece belongs to.
  TensorRuns(const TensorFactors& tensor, const TrainedPiece& piece, int t, int t_degree);

  int64_t count() const { return count_; }
  Run operator[](int64_t index) const;  // has length 0 if the run is outside the piece or the tensor
  int64_t elements() const;
  int64_t row_step() const { return dims_.back().row_step; }
  int64_t column_step() const { return dims_.back().column_step; }

 private:
  struct Dim {
    int64_t size;        // size of the local parameter
    int64_t begin, end;  // the part of it that the tensor covers
    int64_t row_step, column_step;
  };
  bool joins(const Dim& outer, const Dim& inner) const;

  TrainedPiece piece_;
  std::vector<Dim> dims_;  // outermost first; dimensions that form one stretch are merged
  int64_t row_ = 0, column_ = 0;
  int64_t first_ = 0, count_ = 0;
};

}  // namespace shardline
