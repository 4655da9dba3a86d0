// The elements of one tensor in one piece, as runs: stretches along which rows or columns increase by a fixed step.
// Sums over a tensor are made run by run.
#pragma once
#include "optim/flat/stage_parameters.h"
#include "optim/update/tensor_factors.h"

namespace shardline {

class TensorRuns {
 public:
  struct Run {
    int64_t begin = 0, length = 0;  // in the range
    int64_t row = 0, column = 0;    // indexes of its first element in the vectors of sums
  };

  // t, t_degree: the slice of the parameter to which the piece belongs.
  TensorRuns(const TensorFactors& tensor, const TrainedPiece& piece, int t, int t_degree);

  int64_t count() const { return count_; }
  Run operator[](int64_t index) const;  // of length 0 if the tensor ends inside of the piece
  int64_t elements() const;
  int64_t row_step() const { return dims_.back().row_step; }
  int64_t column_step() const { return dims_.back().column_step; }

 private:
  struct Dim {
    int64_t size;        // of the local parameter
    int64_t begin, end;  // the tensor's part of it
    int64_t row_step, column_step;
  };
  bool joins(const Dim& outer, const Dim& inner) const;

  TrainedPiece piece_;
  std::vector<Dim> dims_;  // outermost first; dimensions that form one stretch are merged
  int64_t row_ = 0, column_ = 0;
  int64_t first_ = 0, count_ = 0;
};

}  // namespace shardline
