// What a rank runs of a part of a program: the whole part, or its share of it.
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

// The places that this rank has of a divided dimension (int64, on the device of `like`).
at::Tensor own_places(const TensorParallel& tp, const DividedDimension& of, const at::Tensor& like);

class PartRun {
 public:
  // split: null if this rank runs everything. tp: with sequence parallelism, ranks divide rows. Graph and part must
  // outlive this.
  PartRun(const Graph& graph, const GraphPart& part, const ProgramSplit* split, const TensorParallel& tp,
          at::ScalarType floating, at::Device device);

  const GraphPart& whole() const { return whole_; }
  // Whether a value of whole().inputs or whole().outputs is the rank's rows, [1, rows, features].
  bool takes_rows(int input) const { return divided_ && divided_->inputs_are_rows[input]; }
  bool makes_rows(int output) const { return divided_ && divided_->outputs_are_rows[output]; }
  // From the values of whole().inputs to those of whole().outputs, of which only the last dimension can be divided.
  std::vector<c10::IValue> run(std::vector<c10::IValue> inputs, const RandomCalls* random,
                               const ProgramBatch& batch) const;

  // Null where the tensor is whole on this rank.
  const DividedDimension* dropped_at(int site) const;
  // Whether what is dropped from is the rank's rows.
  bool drops_from_rows(int site) const { return divided_ && divided_->dropped_rows.contains(site); }
  const DividedDimension* output(int number) const;
  // x: an output, or some of its rows, as this rank has it.
  at::Tensor gathered(int number, const at::Tensor& x) const;

 private:
  const GraphPart& whole_;
  TensorParallel tp_;
  std::unique_ptr<const DividedPart> divided_;  // null: everything; `calls_` refers to it
  Interpreter calls_;
};

}  // namespace shardline
