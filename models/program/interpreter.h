// Runs a part of a program. Autograd records the calls as it does those of any C++ code.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/program/graph.h"

namespace shardline {

// What the nodes need that are random in training: dropout, and attention with dropout of its probabilities. `site`:
// the number of the node among the random ones of the part.
struct RandomCalls {
  // Drops elements of x and scales the others.
  std::function<at::Tensor(const at::Tensor& x, double probability, int site)> dropout;
};

// Functions that are no operators, by the name of the node that calls them.
using OwnCalls = std::map<std::string, std::function<at::Tensor(const std::vector<c10::IValue>& arguments)>>;

class Interpreter {
 public:
  // The program's float numbers (kFloat) become `floating`, and new tensors are made on `device`. The graph must
  // outlive the interpreter.
  Interpreter(const Graph& graph, const GraphPart& part, at::ScalarType floating, at::Device device);
  ~Interpreter();
  Interpreter(Interpreter&&) noexcept;

  // The values of part.outputs, from those of part.inputs in their order. Without `random` the program runs as in
  // evaluation: nothing is dropped. A value is freed after its last use. Throws a RunError that names the operator
  // whose call fails.
  std::vector<c10::IValue> run(std::vector<c10::IValue> inputs, const RandomCalls* random,
                               const OwnCalls& own_calls = {}) const;

 private:
  struct Step;
  struct Slots;

  static void compute(const Step& step, std::vector<c10::IValue>& stack, const RandomCalls* random,
                      const OwnCalls& own_calls);

  std::vector<Step> steps_;
  size_t inputs_ = 0, slots_ = 0;
  c10::DeviceType device_;
  std::vector<int> outputs_;  // slots
};

}  // namespace shardline
