#include "models/program/program.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"
#include "models/program/operators.h"

namespace shardline {
namespace {

constexpr int kMean = 1;  // of the argument `reduction`

// A run of modules PATH.0, PATH.1, ... of one class, and where their nodes are.
struct Blocks {
  std::string path;
  std::vector<int> begins;  // by block: its first node
  int end = 0;              // after the last node of the last block
};

class Cutter {
 public:
  explicit Cutter(Pt2Archive archive) : program_(std::make_shared<Program>()) {
    program_->archive = std::move(archive);
    producer_.assign(graph().values.size(), -1);
    for (size_t i = 0; i < graph().nodes.size(); ++i)
      for (const auto& result : graph().nodes[i].results) producer_[result.value] = i;
    find_trained_values();
  }

  std::shared_ptr<const Program> cut() {
    check_numbers();
    find_ids();
    find_loss();
    find_tables();
    const Blocks blocks = find_blocks();
    std::vector<int> begins = {0};
    begins.insert(begins.end(), blocks.begins.begin(), blocks.begins.end());
    begins.push_back(blocks.end);

    std::vector<int> wanted = {program_->loss.input, program_->loss.target};
    if (const auto logits = find_logits()) {
      program_->logits = part_from(begins.back(), {*logits});
      wanted.push_back(*logits);
    }
    // Backwards, because a layer passes on what later ones take.
    std::vector<ProgramLayer> layers(begins.size());
    for (size_t i = layers.size(); i-- > 0;) {
      ProgramLayer& layer = layers[i];
      const bool first = i == 0, last = i + 1 == layers.size();
      layer.name = first ? "embedding" : last ? "head" : cat(blocks.path, '.', i - 1);
      layer.is_block = !first && !last;
      layer.border = border_of(part_from(begins[i], wanted));
      layer.part = part_from(begins[i], last ? std::vector{program_->loss.input, program_->loss.target} : wanted);
      check_border(layer);
      for (const int value : part_from(begins[i], wanted).inputs)
        if (const auto* input = program_->input_of(value); input && input->kind == GraphInput::Kind::parameter)
          layer.parameters.push_back(input->name);
      wanted = layer.border;
    }
    program_->layers = std::move(layers);
    return program_;
  }

 private:
  const Graph& graph() const { return program_->archive.graph; }

  [[noreturn]] void refuse(const std::string& what, const std::string& advice) const {
    throw ConfigError(cat("/model/path: ", program_->archive.path, ": ", what, "; ", advice));
  }

  template <class Visit>
  static void visit_values(const GraphArgument& argument, const Visit& visit) {
    if (argument.value >= 0) visit(argument.value);
    for (const auto& item : argument.items) visit_values(item, visit);
  }

  // Values that follow from parameters, or from random numbers.
  void find_trained_values() {
    is_trained_.assign(graph().values.size(), false);
    for (const auto& input : graph().inputs)
      if (input.kind == GraphInput::Kind::parameter) is_trained_[input.value] = true;
    for (const auto& node : graph().nodes) {
      bool trained = node.name == kDropout || node.name == kAttention;
      for (const auto& argument : node.arguments)
        visit_values(argument, [&](int value) { trained |= is_trained_[value]; });
      for (const auto& result : node.results) is_trained_[result.value] = trained;
    }
  }

  void check_numbers() const {
    for (const auto& [name, entry] : program_->archive.weights->tensors())
      if (entry.dtype != at::kFloat)
        refuse(cat("parameter ", name, " has the dtype ", entry.dtype), "export the model with parameters in float32");
  }

  void find_ids() {
    const auto* ids = program_->argument(kIdsArgument);
    if (!ids) refuse(cat("the program has no argument ", kIdsArgument), "export a model that takes token ids");
    rows_ = graph().values[ids->value].sizes;
    if (rows_.size() != 2 || rows_[0].expression.empty() || rows_[1].expression.empty() || rows_[0] == rows_[1])
      refuse(cat("its ", kIdsArgument, " must be [batch, length] of any size"),
             "export the program with dynamic_shapes for both dimensions");
  }

  void find_loss() {
    std::vector<int> scalars;
    for (const int value : graph().outputs)
      if (graph().values[value].dtype && c10::isFloatingType(*graph().values[value].dtype) &&
          graph().values[value].sizes.empty())
        scalars.push_back(value);
    if (scalars.size() != 1)
      refuse(cat("the program must return one loss, a scalar; it returns ", scalars.size()),
             "export the model in training mode with labels among its arguments");
    const int producer = producer_[scalars[0]];
    const GraphNode* node = producer < 0 ? nullptr : &graph().nodes[producer];
    const auto constant = [&](const char* name) { return node->arguments[place_of_argument(*node, name)].constant; };
    const auto value = [&](const char* name) { return node->arguments[place_of_argument(*node, name)].value; };
    ProgramLoss& loss = program_->loss;
    if (node && node->name == kCrossEntropy && constant("reduction") == c10::IValue(kMean) &&
        constant("weight").isNone() && value("weight") < 0 && constant("label_smoothing") == c10::IValue(0.0) &&
        graph().values[value("target")].dtype == at::kLong) {
      loss = {ProgramLoss::Kind::cross_entropy, value("self"), value("target"), constant("ignore_index").toInt()};
    } else if (node && node->name == "aten::mse_loss" && constant("reduction") == c10::IValue(kMean)) {
      loss = {ProgramLoss::Kind::squared_error, value("self"), value("target"), 0};
    } else {
      refuse(cat("its loss is made by ", node ? node->text() : "nothing",
                 ", but must be the mean of cross_entropy_loss without weights and smoothing, or of mse_loss"),
             "export the model with such a loss");
    }
  }

  std::optional<int> find_logits() const {
    for (const int value : graph().outputs)
      if (graph().values[value].dtype && c10::isFloatingType(*graph().values[value].dtype) &&
          graph().values[value].sizes.size() >= 2)
        return value;
    return {};
  }

  // The value before calls that only change its form.
  int origin(int value) const {
    static const std::set<std::string> forms = {"aten::view", "aten::reshape", "aten::to", "aten::contiguous"};
    while (producer_[value] >= 0 && forms.contains(graph().nodes[producer_[value]].name))
      value = graph().nodes[producer_[value]].arguments[0].value;
    return value;
  }

  void find_tables() {
    const int ids = program_->argument(kIdsArgument)->value;
    for (const auto& node : graph().nodes) {
      if (node.name != "aten::embedding") continue;
      const int table = node.arguments[place_of_argument(node, "weight")].value;
      const int indices = node.arguments[place_of_argument(node, "indices")].value;
      if (table < 0 || indices < 0 || graph().values[table].sizes.empty()) continue;
      const int64_t rows = graph().values[table].sizes[0].number;
      if (origin(indices) == ids)
        program_->vocab_size = rows;
      else if (!is_trained_[indices])
        program_->lookups.push_back({part_from(0, {indices}), rows});
    }
    if (program_->vocab_size <= 0)
      refuse(cat("its ", kIdsArgument, " are looked up in no table"),
             "export a model that takes token ids, with example labels that are another tensor than the ids");
  }

  // The nodes from `begin` on, and those before that are computed again, which the values need.
  GraphPart part_from(int begin, const std::vector<int>& wanted) const {
    std::set<int> nodes, inputs;
    std::vector<int> open = wanted;
    while (!open.empty()) {
      const int value = open.back();
      open.pop_back();
      const int producer = producer_[value];
      if (producer < 0 || (producer < begin && is_trained_[value])) {
        inputs.insert(value);
      } else if (nodes.insert(producer).second) {
        for (const auto& argument : graph().nodes[producer].arguments)
          visit_values(argument, [&](int used) { open.push_back(used); });
      }
    }
    return {{nodes.begin(), nodes.end()}, {inputs.begin(), inputs.end()}, wanted};
  }

  std::vector<int> border_of(const GraphPart& part) const {
    std::vector<int> border;
    for (const int value : part.inputs)
      if (producer_[value] >= 0) border.push_back(value);
    return border;
  }

  void check_border(const ProgramLayer& layer) const {
    for (const int number : layer.border) {
      const GraphValue& value = graph().values[number];
      const bool fits = value.dtype == at::kFloat && value.sizes.size() == 3 && value.sizes[0] == rows_[0] &&
                        value.sizes[1] == rows_[1] && value.sizes[2].expression.empty();
      if (!fits)
        refuse(cat("layer ", layer.name, " needs the value ", value.name, " (made by ",
                   graph().nodes[producer_[number]].text(), ") of an earlier one"),
               "only hidden states [batch, length, features] can pass from one layer to the next");
    }
  }

  // The longest run of modules; of equally long ones the outermost.
  Blocks find_blocks() const {
    struct Module {
      std::string type;
      int begin, end;
    };
    std::map<std::string, std::map<int, Module>> runs;
    for (size_t i = 0; i < graph().nodes.size(); ++i)
      for (const auto& module : graph().nodes[i].modules) {
        const size_t dot = module.path.rfind('.');
        if (dot == std::string::npos || dot + 1 == module.path.size() || module.path.size() - dot > 7 ||
            module.path.find_first_not_of("0123456789", dot + 1) != std::string::npos)
          continue;
        auto& run = runs[module.path.substr(0, dot)];
        const auto [found, is_new] =
            run.try_emplace(std::stoi(module.path.substr(dot + 1)), Module{module.type, int(i), 0});
        found->second.end = i + 1;
      }
    const auto is_run = [](const std::map<int, Module>& run) {
      int number = 0, end = 0;
      for (const auto& [of_path, module] : run) {
        if (of_path != number++ || module.type != run.begin()->second.type || module.begin < end) return false;
        end = module.end;
      }
      return true;
    };
    const std::pair<const std::string, std::map<int, Module>>* best = nullptr;
    for (const auto& run : runs) {
      if (!is_run(run.second)) continue;
      if (!best || run.second.size() > best->second.size() ||
          (run.second.size() == best->second.size() && run.first.size() < best->first.size()))
        best = &run;
    }
    if (!best)
      refuse("the program has no modules NAME.0, NAME.1, ... of one class that run one after the other",
             "export a model whose blocks are in a ModuleList");
    Blocks blocks{.path = best->first};
    for (const auto& [number, module] : best->second) {
      blocks.begins.push_back(module.begin);
      blocks.end = module.end;
    }
    return blocks;
  }

  std::shared_ptr<Program> program_;
  std::vector<int> producer_;     // by value: the node that makes it; -1: an input
  std::vector<bool> is_trained_;  // by value: follows from parameters
  std::vector<GraphSize> rows_;   // [batch, length]
};

}  // namespace

const GraphInput* Program::argument(const std::string& name) const {
  const auto found = std::ranges::find_if(archive.graph.inputs, [&](const GraphInput& input) {
    return input.kind == GraphInput::Kind::user && input.name == name;
  });
  return found == archive.graph.inputs.end() ? nullptr : &*found;
}

const GraphInput* Program::input_of(int value) const {
  const auto found = std::ranges::find(archive.graph.inputs, value, &GraphInput::value);
  return found == archive.graph.inputs.end() ? nullptr : &*found;
}

at::Tensor Program::constant(int value) const {
  const GraphInput* input = input_of(value);
  const bool is_constant =
      input && (input->kind == GraphInput::Kind::buffer || input->kind == GraphInput::Kind::constant);
  return is_constant ? archive.constants.at(input->name) : at::Tensor();
}

std::shared_ptr<const Program> cut_program(Pt2Archive archive) {
  return Cutter(std::move(archive)).cut();
}

}  // namespace shardline
