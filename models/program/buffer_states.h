// The buffers that a program or a traced module changes, such as counters of its steps. Only changes that follow from
// buffers and constants alone are accepted: then the values before a training step are a function of its number and of
// the archive, so that each rank computes them for itself, whatever the layout, and a run that continues from a
// checkpoint has the same values. As in PyTorch, where a step is one call of the program with the whole batch, a step
// changes a buffer once.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "models/program/graph.h"
#include "models/program/interpreter.h"

namespace shardline {

class BufferStates {
 public:
  // Tensors by their value of the graph.
  using Values = std::map<int, at::Tensor>;

  // changes: from buffers and constants to the changed buffers, which it changes in place. begin: the values of its
  // inputs in the archive.
  BufferStates(Graph graph, const GraphPart& changes, Values begin);

  // The changed buffers before this training step (counted from 1; smaller: before the first one), on the CPU.
  // floating: the type in which the program computes and changes float32 buffers. Threads may call it at the same time.
  // The tensors must not be changed.
  Values before(int64_t step, at::ScalarType floating = at::kFloat);

  // Sets the changed buffers to these values before this step; later values follow from them.
  void restart(int64_t step, const Values& changed);

 private:
  struct States {
    Interpreter interpreter;
    std::map<int64_t, Values> known;  // values of all inputs, by step: begins_, and some of the latest
  };

  States& states_of(at::ScalarType floating);
  Values after(const Interpreter& interpreter, const Values& before) const;

  const Graph graph_;
  const GraphPart changes_;
  std::mutex mutex_;
  std::map<int64_t, Values> begins_;  // values of all inputs, by step: those that do not follow from earlier ones
  std::map<at::ScalarType, States> states_;
};

}  // namespace shardline
