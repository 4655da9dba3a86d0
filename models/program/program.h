// A program that is cut into layers where only hidden states cross: those of the source and, in a program with encoder
// and decoder, of the target. Repeated modules become blocks. What follows from arguments, buffers and constants alone,
// such as masks and positions, crosses no border: each layer that needs it computes it again, as it does biases that
// are looked up in small tables.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/model/microbatch.h"
#include "models/program/graph_flow.h"
#include "models/program/interpreter.h"
#include "models/program/program_loss.h"
#include "models/program/pt2_archive.h"

namespace shardline {

// What a config says about the use of a program.
struct ProgramUse {
  // What has a label: each row, the next token, its own token or a class; each segment; the first and the last row of
  // an answer; each row of the target, which follows the source in its segment.
  enum class Predicts { next_row, masked_row, row, segment, span, target_row };
  Predicts predicts = Predicts::next_row;
  // By argument what it is given; others are given what they are named. Names that no task has are those of columns of
  // the data with tensors, see has_columns.
  std::map<std::string, std::string> inputs;
  std::string loss_output;                 // a scalar; empty: "loss", or the only scalar
  std::string loss_function, loss_logits;  // or a function of an output and the labels; empty: none
  std::optional<int64_t> start_id;         // of the token before the first one of a target
  std::optional<int64_t> pad_id;           // of padding, where the program itself has several ids
};

struct ProgramLayer {
  std::string name;  // "embedding", the path of a repeated module, "PATH.embedding" before further ones, "head"
  bool is_block = false;
  // From the layer's arguments, which are inputs of the graph and the border before it, to the border after it; in the
  // head to the tensors of the loss.
  GraphPart part;
  std::vector<int> border;              // values of earlier layers that it takes
  std::vector<std::string> parameters;  // of the archive that it uses, in the order of the graph
};

// A table in which something is looked up that does not follow from parameters, such as positions.
struct ProgramLookup {
  GraphPart indices;
  int64_t rows = 0;
};

struct Program {
  Pt2Archive archive;
  ProgramUse use;
  GraphFlow flow;
  std::vector<ProgramLayer> layers;
  ProgramLoss loss;
  // Of the last layer: to the logits, of answers those of the first and of the last row; without outputs if there are
  // none.
  GraphPart logits;
  int64_t labels = 0;                         // the last size of the logits; 0: it is not a number
  int64_t vocab_size = 0;                     // of the table in which input_ids are looked up
  int64_t pad_id = 0;                         // the padding of the words' table, or the id that ids are compared with
  std::vector<ProgramLookup> lookups;         // of other tables
  GraphSize source_length, target_length;     // target: of programs with a target
  std::vector<TensorColumn> columns;          // that the data must have; empty: its samples are token ids
  std::optional<at::ScalarType> label_dtype;  // of the argument labels
  // The same program where all sources have one length, and all targets; null: this one. See masks/unmasked.h.
  std::shared_ptr<const Program> unmasked;
  int64_t unmasked_length = 0;  // up to this length of sources and of targets

  const Graph& graph() const { return archive.graph; }
  // The rows of a sample's source in programs with columns, whatever the sample; 0: as many as it has tokens.
  int64_t source_rows() const { return columns.empty() ? 0 : source_length.number; }
  bool has_target() const { return use.predicts == ProgramUse::Predicts::target_row; }
  // What an argument is given: "input_ids", "labels", ...
  const std::string& given_to(const GraphInput& argument) const;
  const GraphInput* argument(const std::string& given) const;  // that is given this; null if there is none
  const GraphInput* input_of(int value) const;                 // null if a node makes the value
  at::Tensor constant(int value) const;                        // a buffer or constant of the archive; else undefined
  bool is_of_target(int value) const;                          // [batch, length of the target, ...]
};

inline constexpr const char* kIdsArgument = "input_ids";

// Throws a ConfigError that says why a program cannot be trained here.
std::shared_ptr<const Program> cut_program(Pt2Archive archive, const ProgramUse& use = {});

}  // namespace shardline
