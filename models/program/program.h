// A program cut into layers where only hidden states cross: those of the source and, in a program with encoder and
// decoder, of the target, which may be several tensors of different sizes. Repeated modules become blocks. Values that
// depend only on arguments, buffers and constants, such as masks and positions, do not cross borders: each layer that
// needs them recomputes them, as well as biases that are looked up in small tables.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/model/microbatch.h"
#include "models/program/buffer_states.h"
#include "models/program/counted_dimensions.h"
#include "models/program/graph_flow.h"
#include "models/program/interpreter.h"
#include "models/program/program_loss.h"
#include "models/program/pt2_archive.h"

namespace shardline {

// What a config states about the use of a program.
struct ProgramUse {
  // What has a label: each row (the next token, its own token or a class); each segment; the first and the last row of
  // an answer; each row of the target, which follows the source in its segment.
  enum class Predicts { next_row, masked_row, row, segment, span, target_row };
  Predicts predicts = Predicts::next_row;
  // By argument: the name of the data that it is given; other arguments are given the data of their own name. Names
  // that no task has are those of columns of the data with tensors, see has_columns.
  std::map<std::string, std::string> inputs;
  std::string loss_output;                 // a scalar; empty: "loss", or the only scalar
  std::string loss_function, loss_logits;  // alternatively, a function of an output and the labels; empty: none
  std::optional<bool> labels_are_numbers;  // in samples, if the config says so; unset: they are if there is one label
  std::optional<int64_t> start_id;         // the token before the first token of a target
  std::optional<int64_t> pad_id;           // the padding, if the program itself uses several ids
};

struct ProgramLayer {
  std::string name;  // "embedding", the path of a repeated module, "PATH.embedding" before further runs, "head"
  bool is_block = false;
  // From the layer's arguments, which are inputs of the graph and the border before it, to the border after it; in the
  // head, to the tensors of the loss.
  GraphPart part;
  std::vector<int> border;              // values of earlier layers that the layer takes
  std::vector<std::string> parameters;  // names in the archive, as used by the layer, in graph order
};

// A table lookup by values that do not depend on parameters, such as positions.
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
  // Part of the last layer that computes the logits; for answers, those of the first and of the last row. Has no
  // outputs if the program has no logits.
  GraphPart logits;
  int64_t labels = 0;                         // the last size of the logits; 0: not a constant
  int64_t vocab_size = 0;                     // size of the table in which input_ids are looked up
  int64_t pad_id = 0;                         // the embedding's padding_idx, or the id that ids are compared with
  std::vector<ProgramLookup> lookups;         // look-ups in other tables
  std::vector<GraphSize> batches;             // the sizes of arguments that are numbers of samples
  GraphSize source_length, target_length;     // target: for programs with a target
  int64_t fixed_samples = 0;                  // how many samples it takes at a time; 0: any number
  CountedDimensions counted;                  // empty if no size of the arguments of tokens is fixed
  std::vector<TensorColumn> columns;          // columns that the data must have; empty: its samples are token ids
  std::optional<at::ScalarType> label_dtype;  // the type of the argument `labels`
  // The same program for sources of one length and targets of one length; null: this one. See masks/unmasked.h.
  std::shared_ptr<const Program> unmasked;
  int64_t unmasked_length = 0;            // valid up to this length of sources and of targets
  std::shared_ptr<BufferStates> buffers;  // the states of the buffers that it changes; null: none

  const Graph& graph() const { return archive.graph; }
  // The rows of a sample's source in programs with columns, whatever the sample; 0: as many as it has tokens.
  int64_t source_rows() const { return columns.empty() ? 0 : source_length.number; }
  // The only length that it takes, of sources (without a target: of samples) and of targets; 0: any.
  int64_t fixed_source() const { return source_length.expression.empty() ? source_length.number : 0; }
  int64_t fixed_target() const { return has_target() && target_length.expression.empty() ? target_length.number : 0; }
  bool has_target() const { return use.predicts == ProgramUse::Predicts::target_row; }
  // What an argument is given: "input_ids", "labels", ...
  const std::string& given_to(const GraphInput& argument) const;
  const GraphInput* argument(const std::string& given) const;  // the argument that is given this; null if there is none
  const GraphInput* input_of(int value) const;                 // null if a node computes the value
  // A buffer or constant of the archive, a copy if calls change it; or undefined.
  at::Tensor constant(int value) const;
  bool is_changed(int value) const { return flow.changes.contains(flow.storage[value]); }
  bool is_of_target(int value) const;  // [batch, length of the target, ...], or both in the other order
  // Whether a dimension of a value counts samples or tokens; nothing if it has that size, but the calls do not show
  // what it counts.
  std::optional<bool> counts(int value, size_t dimension, Counts what) const;
};

inline constexpr const char* kIdsArgument = "input_ids";

// Throws a ConfigError that explains why the program cannot be trained here.
std::shared_ptr<const Program> cut_program(Pt2Archive archive, const ProgramUse& use = {});

}  // namespace shardline
