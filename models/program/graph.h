// A program that torch.export made, as data: calls in the order in which they run, on numbered values.
#pragma once
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardline {

// A size of a tensor: a number, or an expression of sizes of the inputs, in the spelling of the file.
struct GraphSize {
  int64_t number = 0;      // -1 if there is an expression
  std::string expression;  // empty: the number
  bool operator==(const GraphSize&) const = default;
};

// A tensor or, without a dtype, a number that is computed from sizes.
struct GraphValue {
  std::string name;
  std::optional<at::ScalarType> dtype;
  std::vector<GraphSize> sizes;
};

// An argument of a call: a constant, a value, or a list in which values occur.
struct GraphArgument {
  // What the operator wants where it is not what the value is: Python passes numbers for tensors and ints for floats,
  // and lists without a type.
  enum class As { given, tensor, floating, ints, floats, tensors, optional_tensors };

  c10::IValue constant;  // if there is no value and no list
  int value = -1;        // >= 0: its number
  std::vector<GraphArgument> items;
  bool is_list = false;
  As as = As::given;
};

// A module whose code a node comes from.
struct GraphModule {
  std::string path;  // "transformer.h.0"
  std::string type;  // "transformers.models.gpt2.modeling_gpt2.GPT2Block"
};

struct GraphNode {
  struct Autocast {
    std::optional<at::ScalarType> half;  // unset: off
  };
  // A value that the call makes: the result at this place of its results, or one item of this result, a list.
  struct Result {
    int place = 0;
    int item = -1;
    int value = 0;
  };

  std::string name;      // of an operator "aten::linear", otherwise of a function of Python, "_operator.mul"
  std::string overload;  // "Tensor"; empty: the default
  bool is_operator = true;
  std::vector<GraphArgument> arguments;  // in the order of the operator's schema, defaults filled in
  std::vector<Result> results;
  std::vector<GraphModule> modules;  // outermost first
  bool has_grad = true;              // false: in a region without gradients
  // In a region that has autocast on, for this type, or off; unset: as the program is run.
  std::optional<Autocast> autocast = {};

  std::string text() const { return overload.empty() ? name : name + "." + overload; }
};

struct GraphInput {
  enum class Kind { parameter, buffer, constant, user };
  Kind kind = Kind::user;
  std::string name;  // of the tensor in the file, or of the argument
  int value = 0;
};

struct GraphOutput {
  std::string name;  // "logits"; of a tuple, the place
  int value = 0;
};

struct Graph {
  std::vector<GraphValue> values;
  std::vector<GraphInput> inputs;  // tensors only
  std::vector<GraphNode> nodes;
  std::vector<GraphOutput> outputs;  // what the program returns, tensors only
};

// Some nodes of a graph in the order of the graph, and the values that go in and out.
struct GraphPart {
  std::vector<int> nodes;
  std::vector<int> inputs, outputs;
};

}  // namespace shardline
