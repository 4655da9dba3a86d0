// Adafactor on flat ranges, as transformers computes it with the settings of its Trainer: the learning rate comes from
// the schedule (scale_parameter and relative_step off), the decay rate of squares is 1 - step^-0.8, and the root mean
// square of an update is limited to 1. Second moments of matrices are kept as two vectors of means, others by element.
//
// Means over a tensor are sums over all ranks that hold parts of it, in double precision and in an order that depends
// only on the layout. The vectors are the same on all these ranks.
#pragma once
#include "optim/update/optimizer.h"
#include "optim/update/tensor_runs.h"

namespace shardline {

// The ranks that hold the pieces of a stage's parameters.
struct PartHolders {
  int t = 0, t_degree = 1;       // this rank's slice of a logical parameter
  CommunicatorPtr communicator;  // over the holders of all parts; every part is `counted` on exactly one rank
  at::Device device = at::kCPU;  // of the tensors that the communicator carries
};

class Adafactor : public Optimizer {
 public:
  // parameters: those of which at least one holder has pieces, in the same order on all holders. Throws ConfigError
  // unless the ranges are on the CPU.
  Adafactor(std::vector<TrainedRange> ranges, const std::vector<TrainedParameter>& parameters, PartHolders holders,
            const OptimizerOptions& options);
  void step(double learning_rate, const GradientFactor& gradient_factor) override;
  std::vector<StatePart> state() override;

  // The vectors of one tensor, with a value for each row and for each column of its matrices.
  struct Vectors {
    double *rows, *columns;
  };

 private:
  struct Tensor {
    TensorFactors factors;
    const ParamSpec* spec;            // describes its parameter
    int number;                       // its parameter's number
    size_t source;                    // index of the tensor in the parameter's sources
    int64_t row_begin, column_begin;  // position of its vectors among those of all tensors
  };
  // The part of a tensor that is in a piece of a range on this rank.
  struct Part {
    size_t range, tensor;
    TrainedPiece piece;
    TensorRuns runs;
    int64_t begin;       // where its first element is in the range
    at::Tensor squares;  // second moments by element, starting there, if the tensor is not a matrix
  };
  static Vectors vectors(const Tensor& tensor, const at::Tensor& of_all);

  void update(const Part& part, const at::Tensor& factors, double squared_update, double learning_rate);
  void update_means(double decay);
  void update_squares(double decay);
  at::Tensor update_factors() const;  // like means_: the factors for a matrix's gradient, by row and by column
  std::vector<double> sum_squared_updates(const at::Tensor& factors) const;  // by tensor, before limiting
  void add_over_holders(const at::Tensor& sums) const;

  std::vector<TrainedRange> ranges_;
  std::vector<Tensor> tensors_;
  std::vector<Part> parts_;
  at::Tensor means_;  // double: of the squared gradient, by row and by column of every matrix
  PartHolders holders_;
  OptimizerOptions options_;
};

// See state_tensors(); names and meanings are those of transformers.
std::vector<StateTensor> adafactor_state_tensors(const ParamSpec& spec);

// Bytes of state on a rank that holds `elements` of this parameter.
int64_t adafactor_state_bytes(const ParamSpec& spec, int64_t elements, int64_t element_bytes);

}  // namespace shardline
