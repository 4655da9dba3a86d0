// The description of a model before anything is allocated: layers in execution order and, for every parameter, its
// logical global shape, how tensor parallelism splits it, where it is in a Hugging Face file and how it is initialised.
// Local shards, reading and writing files, the memory model and the gradient groups are derived from it.
#pragma once
#include <c10/core/ScalarType.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/model/layer_work.h"

namespace shardline {

class Layer;
struct LayerBuild;

struct Range {
  int64_t begin = 0, length = 0;
  int64_t end() const { return begin + length; }
  bool operator==(const Range&) const = default;
};

// Part `index` of `count` units divided into `parts` contiguous parts; the first count % parts parts have one unit
// more.
Range split_range(int64_t count, int parts, int index);

// One tensor of a Hugging Face file as (a part of) a logical parameter: the file's tensor is viewed with the sizes
// `view` (empty: those of the logical parameter), its dimensions are permuted by `permute` (empty: unchanged), and it
// is at `offset` in the logical parameter (empty: at its start). `shape` is its sizes in the file (empty: as `view`).
// `aliases` are other names that it has in files: those of a base model without a head, and older ones. `stand_in`
// names a tensor that has the same values and is read from files that lack this one (empty: none); a file may contain
// both.
struct ParamSource {
  std::string tensor;
  std::vector<int64_t> view;
  std::vector<int64_t> permute;
  std::vector<int64_t> offset;
  std::vector<int64_t> shape;
  std::vector<std::string> aliases = {};
  std::string stand_in = {};
};

struct Init {
  enum class Kind { zeros, ones, normal } kind = Kind::zeros;
  double std = 0;
};

struct ParamSpec {
  std::string name;            // within its layer: "attn.qkv.weight"
  std::vector<int64_t> shape;  // logical and global: [3, heads, head_dim, hidden]
  // The dimension whose units are split over the T ranks; -1: every rank has the whole parameter.
  int split_dim = -1;
  Init init;
  std::string tied_to;  // full name of the parameter whose values this one shares; empty: its own
  bool trainable = true;
  bool decays = true;           // subject to weight decay
  bool partial_over_t = false;  // whole on every T rank, but each computes only a part of its gradient
  bool deferred = false;        // its gradient is a product that waits in the WeightGradQueue
  bool may_be_missing = false;  // in files; it is then initialised, as a part of a head that is yet to be trained
  bool row_is_word = false;     // dimension 0 counts words: files may have fewer, see models/files/new_rows.h
  std::vector<ParamSource> sources;

  int64_t numel() const;                   // counts the logical parameter
  Range split(int t, int t_degree) const;  // units of split_dim on rank t; {0, 0} if not split
  std::vector<int64_t> local_shape(int t, int t_degree) const;
};

// One tensor at a layer border. Sizes are symbolic: kRows is the number of rows of a microbatch that a rank has (all
// its tokens, or its part of them under sequence parallelism).
struct BorderTensor {
  static constexpr int64_t kRows = -1;
  std::string name;
  std::vector<int64_t> shape;
};

// The properties of a microbatch on one rank that determine what a layer keeps for it in training.
struct KeptCase {
  int64_t tokens = 0, rows = 0;  // rows: at its borders, see border_rows()
  int64_t length = 1;            // rows in a sequence; a divisor of tokens
  int t = 0, t_degree = 1;
  int64_t element_bytes = 4;         // per activation inside layers
  int64_t border_bytes = 4;          // per element between layers
  bool recompute_attention = false;  // "selective"
  bool attention_in_fp32 = false;    // HalfOptions::attention_in_fp32
  bool on_accelerator = false;       // the rank computes on one
  auto operator<=>(const KeptCase&) const = default;
};

// Bytes of tensors, counting each storage once, without parameters and the batch.
struct KeptBytes {
  int64_t activations = 0;   // between forward and backward: the layer's input and what its ops save
  int64_t weight_pairs = 0;  // from BackwardInput to BackwardWeight, if these are separate: the (X, dY) pairs
  bool operator==(const KeptBytes&) const = default;
};

// The peak number of bytes that a pass of one microbatch through a layer uses in addition to what exists when it
// begins: what it keeps, its result, and the workspace of its ops. Excludes the few thousand bytes that depend on
// threads, and an accelerator's own workspaces.
struct PassBytes {
  int64_t forward = 0;
  int64_t backward = 0;        // weight gradients computed immediately; memory freed on the way is reused
  int64_t input_gradient = 0;  // weight gradients wait
};

// A part of a layer that is either split over the T ranks or held as a whole by each of them. It consists of the
// parameters that can be split and whose names begin with the unit's name.
struct SplitUnit {
  std::string name;   // within its layer: "attn"
  std::string parts;  // what is divided among the ranks: "heads"
  int64_t count = 0;  // number of these parts in the model
  bool split = true;
  std::string why;  // empty: not decided
  bool operator==(const SplitUnit&) const = default;
};

// SplitUnit::parts of attention.
inline constexpr const char* kAttentionHeads = "heads";
// SplitUnit::parts of units with a row for each word of the vocabulary.
inline constexpr const char* kVocabularyWords = "words";

// Decisions about units, by full name ("h.3.attn"); all other units are split.
struct SplitChoice {
  bool split = true;
  std::string why;
  bool operator==(const SplitChoice&) const = default;
};
using SplitChoices = std::map<std::string, SplitChoice>;

struct LayerSpec {
  std::string name;       // "h.3": prefix of its parameters' full names
  bool is_block = false;  // one transformer layer of the HF config (the unit of stage counts)
  std::vector<SplitUnit> units;
  std::vector<ParamSpec> params;
  std::vector<BorderTensor> output;          // passed to the next layer; empty for the last one
  std::vector<std::string> ignored_tensors;  // buffers in older Hugging Face files; not read
  // Distinguishes layers with equal parameters and borders that compute different things; it is only compared.
  std::string code;
  // False if neither this layer nor an earlier one has a trained parameter: then it runs only its forward pass.
  bool has_backward = true;
  // Costs of the layer: add_costs_of_ops (models/graph/dry_run.h) finds them by a dry run, or the spec states them.
  // flops_per_token, which the partition balances, is a third of the products of forward and backward, without the
  // attention core. For a layer that is trained, this equals its forward pass.
  double flops_per_token = 0;
  std::function<LayerWork(const WorkShape&)> work;
  std::function<std::unique_ptr<Layer>(const LayerBuild&)> build;  // creates the local part
  std::function<KeptBytes(const KeptCase&)> kept;                  // for full microbatches
  std::function<PassBytes(const KeptCase&)> passes;

  std::string full_name(const ParamSpec& param) const { return name + "." + param.name; }
  std::string full_name(const SplitUnit& unit) const { return name + "." + unit.name; }
};

// The kind of a layer: a text that describes shapes, splits, borders and code, but contains no names. Layers of a model
// with equal kinds have equal costs.
std::string layer_kind(const LayerSpec& layer);

// A tensor of the model's files that no layer trains: a buffer, or a parameter that no layer uses.
struct BufferSpec {
  std::string name;  // in files
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::string> other_names = {};  // of the same tensor, in modules that share it; not written
};

struct ModelSpec {
  std::string family;             // "gpt2"
  std::string variant;            // what changes the layers' work but not their shapes: "gelu_tanh, attention dropout"
  std::vector<LayerSpec> layers;  // in execution order
  int64_t vocab_size = 0;
  int64_t type_count = 0;        // number of token types; 0: they are ignored
  int64_t row_labels = 0;        // outputs of a head that classifies rows; 0: labels of rows are words
  bool predicts_next = true;     // a row predicts the next token's label; false: its own
  bool loss_of_samples = false;  // a step's loss is the mean over its samples, not over its labels
  int64_t max_positions = 0;
  int64_t column_bytes = 0;  // bytes of a sample's tensors, see Microbatch::columns
  int64_t most_samples = 0;  // in a microbatch; 0: any number
  int64_t most_targets = 0;  // tokens of a target, which max_positions includes; 0: as many as there are positions
  // Prefixes of tensors in files that belong to heads that this model does not have. They are not read.
  std::vector<std::string> surplus;
  std::vector<BufferSpec> buffers;  // every rank knows their values, see buffers_of (engine/run/model_source.h)

  int64_t parameter_count() const;  // counts tied parameters once
  int64_t trained_count() const;    // counts only the trained ones
  int block_count() const;
  const ParamSpec& param(const std::string& full_name) const;
  // The first layer with a backward pass.
  int first_with_backward() const;
};

void to_json(nlohmann::json& json, const ModelSpec& spec);

}  // namespace shardline
