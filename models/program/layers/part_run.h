// What a rank runs for a part of a program: the whole part, or its share of it.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "models/program/interpreter.h"
#include "models/program/program_inputs.h"
#include "models/program/program_split.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

// This rank's places in a divided dimension (int64, on the device of `like`).
at::Tensor own_places(const TensorParallel& tp, const DividedDimension& of, const at::Tensor& like);

class PartRun {
 public:
  // split: null if this rank runs everything. tp: with sequence parallelism, ranks divide rows. Graph and part must
  // outlive this object.
  PartRun(const Graph& graph, const GraphPart& part, const ProgramSplit* split, const TensorParallel& tp,
          at::ScalarType floating, at::Device device);

  const GraphPart& whole() const { return whole_; }
  // Whether an element of whole().inputs or whole().outputs is the rank's rows, [1, rows, features].
  bool takes_rows(int input) const { return divided_ && divided_->inputs_are_rows[input]; }
  bool makes_rows(int output) const { return divided_ && divided_->outputs_are_rows[output]; }
  // Computes the values of whole().outputs, of which only the last dimension can be divided, from whole().inputs.
  std::vector<c10::IValue> run(std::vector<c10::IValue> inputs, const RandomCalls* random,
                               const ProgramBatch& batch) const;

  // The divided dimension of the tensor at this dropout site; null if the tensor is whole on this rank.
  const DividedDimension* dropped_at(int site) const;
  // Whether this dropout applies to the rank's rows.
  bool drops_from_rows(int site) const { return divided_ && divided_->dropped_rows.contains(site); }
  const DividedDimension* output(int number) const;
  // x: an output, or some of its rows, in this rank's form.
  at::Tensor gathered(int number, const at::Tensor& x) const;

 private:
  const GraphPart& whole_;
  TensorParallel tp_;
  std::unique_ptr<const DividedPart> divided_;  // null: this rank runs everything; `calls_` refers to it
  Interpreter calls_;
};

}  // namespace shardline
