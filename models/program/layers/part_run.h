// What a rank runs of a part of a program: the whole part, or its share of it.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "models/program/interpreter.h"
#include "models/program/program_split.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

// The range of a divided dimension that this rank has, and its places in the whole one (int64, on the device of
// `like`).
Range own_range(const TensorParallel& tp, const DividedDimension& of);
at::Tensor own_places(const TensorParallel& tp, const DividedDimension& of, const at::Tensor& like);

class PartRun {
 public:
  // split: null if this rank runs everything. Graph and part must outlive this.
  PartRun(const Graph& graph, const GraphPart& part, const ProgramSplit* split, const TensorParallel& tp,
          at::ScalarType floating, at::Device device);

  const GraphPart& whole() const { return whole_; }
  // From the values of whole().inputs to those of whole().outputs, of which only the last dimension can be divided.
  std::vector<c10::IValue> run(std::vector<c10::IValue> inputs, const RandomCalls* random) const;

  // Null where the tensor is whole on this rank.
  const DividedDimension* dropped_at(int site) const;
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
