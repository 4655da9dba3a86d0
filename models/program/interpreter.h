// Runs a part of a program. Autograd records the calls like those of any C++ code.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/program/graph.h"
#include "tensor_parallel/kernels/kernels.h"

namespace shardline {

struct ProgramBatch;

// The random calls of nodes in training: dropout, and attention with dropout on its probabilities. `site`: the index of
// the node among the random nodes of the part.
struct RandomCalls {
  // Drops elements of x and scales the others.
  std::function<at::Tensor(const at::Tensor& x, double probability, int site)> dropout;
  // The dropout with which attention kernels drop the same probabilities, which then need no memory; nothing if they
  // cannot. May be null.
  std::function<std::optional<AttentionDropout>(double probability, int site)> attention_dropout = nullptr;
};

// Functions that are not operators, by the name in the node that calls them. They get the batch of the run.
using OwnCall = std::function<at::Tensor(const std::vector<c10::IValue>& arguments, const ProgramBatch& batch)>;
using OwnCalls = std::map<std::string, OwnCall>;

class Interpreter {
 public:
  // The program's float numbers (kFloat) become `floating`, and new tensors are created on `device`. Operators run our
  // ops where these compute the same function (ops/own_operators.h). The graph must outlive the interpreter.
  Interpreter(const Graph& graph, const GraphPart& part, at::ScalarType floating, at::Device device,
              const OwnCalls& own_calls = {});
  ~Interpreter();
  Interpreter(Interpreter&&) noexcept;

  // Computes the values of part.outputs from those of part.inputs, in order. Without `random`, the program runs as in
  // evaluation: nothing is dropped. A value is freed after its last use. Throws a RunError that names the operator
  // whose call failed. batch: for own calls; not needed without them.
  std::vector<c10::IValue> run(std::vector<c10::IValue> inputs, const RandomCalls* random,
                               const ProgramBatch* batch = nullptr) const;

 private:
  struct Step;
  struct Slots;

  static void compute(const Step& step, std::vector<c10::IValue>& stack, const RandomCalls* random,
                      const ProgramBatch* batch);
  static void attend(const Step& step, std::vector<c10::IValue>& stack, const RandomCalls* random);

  std::vector<Step> steps_;
  size_t inputs_ = 0, slots_ = 0;
  c10::DeviceType device_;
  std::vector<int> outputs_;  // slots
};

}  // namespace shardline
