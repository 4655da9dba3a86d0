// A program that is cut into layers where only hidden states cross. Repeated modules become blocks. What follows from
// arguments, buffers and constants alone, such as masks and positions, crosses no border: each layer that needs it
// computes it again.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/program/interpreter.h"
#include "models/program/pt2_archive.h"

namespace shardline {

struct ProgramLayer {
  std::string name;  // "embedding", the path of a repeated module, "head"
  bool is_block = false;
  // From the layer's arguments, which are inputs of the graph and the border before it, to the border after it; in the
  // head to the tensors of the loss.
  GraphPart part;
  std::vector<int> border;              // values of earlier layers that it takes
  std::vector<std::string> parameters;  // of the archive that it uses, in the order of the graph
};

// The program's loss: the mean of cross_entropy_loss or mse_loss. It is not a node of a part, because the mean of a
// step is not that of a microbatch.
struct ProgramLoss {
  enum class Kind { cross_entropy, squared_error };
  Kind kind = Kind::cross_entropy;
  int input = 0, target = 0;  // values
  int64_t ignored = 0;        // the target that does not count
};

// A table in which something is looked up that does not follow from parameters, such as positions.
struct ProgramLookup {
  GraphPart indices;
  int64_t rows = 0;
};

struct Program {
  Pt2Archive archive;
  std::vector<ProgramLayer> layers;
  ProgramLoss loss;
  GraphPart logits;        // of the last layer: to the first result besides the loss; without outputs if there is none
  int64_t vocab_size = 0;  // of the table in which input_ids are looked up
  std::vector<ProgramLookup> lookups;  // of other tables

  const Graph& graph() const { return archive.graph; }
  const GraphInput* argument(const std::string& name) const;  // of the program; null if there is none
  const GraphInput* input_of(int value) const;                // null if a node makes the value
  at::Tensor constant(int value) const;                       // a buffer or constant of the archive; else undefined
};

inline constexpr const char* kIdsArgument = "input_ids";

// Throws a ConfigError that says why a program cannot be trained here.
std::shared_ptr<const Program> cut_program(Pt2Archive archive);

}  // namespace shardline
