// A program made by torch.export, as data: calls in execution order, on numbered values.
#pragma once
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardline {

// A size of a tensor: a number, or an expression of input sizes as spelled in the file.
struct GraphSize {
  int64_t number = 0;      // -1 if there is an expression
  std::string expression;  // empty: `number` is used
  bool operator==(const GraphSize&) const = default;
};

// A tensor or, without a dtype, a number computed from sizes.
struct GraphValue {
  std::string name;
  std::optional<at::ScalarType> dtype;
  std::vector<GraphSize> sizes;
};

// An argument of a call: a constant, a value, or a list that contains values.
struct GraphArgument {
  // The type that the operator expects if it differs from the value's: Python passes numbers for tensors, ints for
  // floats, and lists without a type.
  enum class As { given, tensor, floating, ints, floats, tensors, optional_tensors };

  c10::IValue constant;  // if there is neither a value nor a list
  int value = -1;        // >= 0: number of the value
  std::vector<GraphArgument> items;
  bool is_list = false;
  As as = As::given;
};

// A module that contains the code of a node.
struct GraphModule {
  std::string path;  // "transformer.h.0"
  std::string type;  // "transformers.models.gpt2.modeling_gpt2.GPT2Block"
};

struct GraphNode {
  struct Autocast {
    std::optional<at::ScalarType> half;  // unset: off
  };
  // A value that the call returns: its result at this place, or one item of that result if it is a list.
  struct Result {
    int place = 0;
    int item = -1;
    int value = 0;
  };

  std::string name;      // an operator's name, "aten::linear", or else a Python function's, "_operator.mul"
  std::string overload;  // "Tensor"; empty: the default overload
  bool is_operator = true;
  std::vector<GraphArgument> arguments;  // in the order of the operator's schema, with defaults filled in
  std::vector<Result> results;
  std::vector<GraphModule> modules;  // outermost first
  bool has_grad = true;              // false: in a region without gradients
  // For regions that switch autocast on, to this type, or off; unset: as the caller of the program decides.
  std::optional<Autocast> autocast = {};

  std::string text() const { return overload.empty() ? name : name + "." + overload; }
};

// The module of a call, for messages: " in blocks.0.norm"; empty outside of all named modules.
std::string place_of(const GraphNode& call);

struct GraphInput {
  enum class Kind { parameter, buffer, constant, user };
  Kind kind = Kind::user;
  std::string name;  // the name of the tensor in the file, or of the argument
  int value = 0;
  bool is_persistent = true;  // for a buffer: whether the module's state_dict() has it
};

struct GraphOutput {
  std::string name;  // "logits"; for a tuple, the index
  int value = 0;
};

struct Graph {
  std::vector<GraphValue> values;
  std::vector<GraphInput> inputs;  // tensors only
  std::vector<GraphNode> nodes;
  std::vector<GraphOutput> outputs;  // what the program returns, tensors only
};

// Some nodes of a graph, in graph order, and the values that enter and leave them.
struct GraphPart {
  std::vector<int> nodes;
  std::vector<int> inputs, outputs;
};

// A run of modules PATH.0, PATH.1, ... of one class, and the positions of their nodes.
struct ModuleRun {
  std::string path;
  std::vector<int> begins;  // by module: its first node
  int end = 0;              // after the last node of the last module

  int begin() const { return begins.front(); }
  double nodes_of_block() const { return double(end - begin()) / begins.size(); }
};

// The longest run of modules that execute one after another (the outermost of equally long ones), and further runs of
// modules of comparable size, such as the blocks of a decoder. In graph order.
std::vector<ModuleRun> repeated_modules(const Graph& graph);

}  // namespace shardline
