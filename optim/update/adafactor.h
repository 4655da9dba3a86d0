// Adafactor on flat ranges, as transformers computes it with the settings of its Trainer: the learning rate is the
// schedule's (scale_parameter and relative_step off), squares decay by 1 - step^-0.8, an update's root mean square is
// limited to 1. Second moments of matrices are kept as two vectors of means, those of other tensors whole.
//
// Means over a tensor are sums over all ranks that hold parts of it, added up in double in an order that depends on
// nothing but the layout. The vectors are the same on all these ranks.
#pragma once
#include "optim/update/optimizer.h"
#include "optim/update/tensor_runs.h"

namespace shardline {

// The ranks among which the pieces of a stage's parameters are dealt.
struct PartHolders {
  int t = 0, t_degree = 1;       // this rank's slice: which part of a logical parameter its local one is
  CommunicatorPtr communicator;  // over the holders of all parts; every part is `counted` on one of them
  at::Device device = at::kCPU;  // of the tensors that it carries
};

class Adafactor : public Optimizer {
 public:
  // parameters: those that any of the holders has pieces of, in the same order on all of them. Throws ConfigError where
  // the ranges are not on the CPU.
  Adafactor(std::vector<TrainedRange> ranges, const std::vector<TrainedParameter>& parameters, PartHolders holders,
            const OptimizerOptions& options);
  void step(double learning_rate, double gradient_factor) override;

  // Of one tensor: a number for each row and each column of its matrices.
  struct Vectors {
    double *rows, *columns;
  };

 private:
  struct Tensor {
    TensorFactors factors;
    int number;                       // of its parameter
    int64_t row_begin, column_begin;  // its vectors among those of all tensors
  };
  // What this rank has of a tensor in a piece of a range.
  struct Part {
    size_t range, tensor;
    bool counted;
    TensorRuns runs;
    at::Tensor squares;  // second moment by element, of a tensor that is not a matrix
  };
  static Vectors vectors(const Tensor& tensor, const at::Tensor& of_all);

  void update(const Part& part, const at::Tensor& factors, double squared_update, double learning_rate);
  void update_means(double decay);
  void update_squares(double decay);
  at::Tensor update_factors() const;  // as means_: what a matrix's gradient is multiplied with, by row and by column
  std::vector<double> sum_squared_updates(const at::Tensor& factors) const;  // by tensor, before they are limited
  void add_over_holders(const at::Tensor& sums) const;

  std::vector<TrainedRange> ranges_;
  std::vector<Tensor> tensors_;
  std::vector<Part> parts_;
  at::Tensor means_;  // double: of the squared gradient, by row and by column of every matrix
  PartHolders holders_;
  OptimizerOptions options_;
  int64_t steps_ = 0;
};

// What it keeps on a rank that holds `elements` of the parameter.
int64_t adafactor_state_bytes(const ParamSpec& spec, int64_t elements, int64_t element_bytes);

}  // namespace shardline
