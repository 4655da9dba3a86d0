#include "models/program/trace/traced_archive.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/numbers/philox.h"
#include "models/graph/torch_seed.h"
#include "models/program/program_inputs.h"
#include "models/program/trace/split_marks.h"
#include "models/program/trace/traced_graph.h"

namespace shardline {
namespace {

using Predicts = ProgramUse::Predicts;

constexpr uint64_t kArgumentSeed = 1234;

// The values of parameters, concatenated in memory.
class MemoryTensors : public TensorFile {
 public:
  MemoryTensors(const std::string& name, const std::vector<OwnedTensor>& tensors)
      : MemoryTensors(name, std::make_shared<const std::string>(bytes_of_all(tensors))) {
    uint64_t begin = 0;
    for (const auto& owned : tensors) {
      const auto shape = owned.tensor.sizes().vec();
      tensors_.emplace(owned.name, entry_in(data_.substr(begin, owned.tensor.nbytes()), owned.name,
                                            owned.tensor.scalar_type(), shape, row_major_strides(shape), 0));
      begin += owned.tensor.nbytes();
    }
  }

 private:
  MemoryTensors(const std::string& name, const std::shared_ptr<const std::string>& bytes) : TensorFile(name, bytes) {
    data_ = bytes_;
  }

  static std::string bytes_of_all(const std::vector<OwnedTensor>& tensors) {
    std::string bytes;
    for (const auto& owned : tensors) {
      const at::Tensor tensor = owned.tensor.detach().contiguous();
      bytes.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
    }
    return bytes;
  }
};

// Adds tensors under their first names.
void add_owned(const torch::OrderedDict<std::string, at::Tensor>& tensors, GraphInput::Kind kind,
               std::vector<OwnedTensor>& owned) {
  std::map<const at::TensorImpl*, size_t> places;
  for (const auto& item : tensors) {
    const auto [place, is_new] = places.emplace(item.value().unsafeGetTensorImpl(), owned.size());
    if (is_new)
      owned.push_back({item.key(), kind, item.value()});
    else
      owned[place->second].other_names.push_back(item.key());
  }
}

// [first, second], below `words`; [first] if `second` is 0
at::Tensor random_words(int64_t first, int64_t second, int64_t words, uint64_t variant) {
  auto ids = second > 0 ? at::empty({first, second}, at::kLong) : at::empty({first}, at::kLong);
  const RandomStream stream{.seed = kArgumentSeed + variant};
  for (int64_t i = 0; i < ids.numel(); ++i)
    ids.data_ptr<int64_t>()[i] = random_word(stream, i) % std::max<int64_t>(words, 1);
  return ids;
}

class Tracing {
 public:
  Tracing(const TracedModel& model, const TracedLabels& labels, uint64_t seed, int64_t longest)
      : model_(model), labels_(labels), seeded_(seed), made_(model.make()) {
    archive_.path = cat("model ", model.name);
    archive_.is_traced = true;
    function_.name = archive_.place();
    check_model();
    made_.module->train();
    function_.argument_names = model.arguments;
    const int count = model.arguments.size();
    const std::string rows = model.columns.empty() ? kIdsArgument : model.columns[0].name;
    function_.rows = place_of_argument([&](const std::string& name) { return name == rows; });
    if (has_target())
      function_.target_rows = place_of_argument([](const auto& name) { return name == "labels" || is_decoders(name); });
    if (function_.rows == count) refuse(cat("takes no ", rows), "name it among the arguments");
    if (function_.target_rows == count)
      refuse("takes neither labels nor decoder_input_ids", "name one of them among the arguments");
    if (longest > kLongestOfAll) function_.further_sizes.push_back({1, longest, longest / 2});
    function_.further_sizes.push_back({1, kLongestOfAll, kLongestOfAll / 2});
  }

  Pt2Archive make() {
    add_owned(made_.module->named_parameters(), GraphInput::Kind::parameter, function_.owned);
    archive_.weights = std::make_shared<MemoryTensors>(archive_.path, function_.owned);
    for (const auto& parameter : function_.owned) {
      archive_.trainable[parameter.name] = parameter.tensor.requires_grad();
      if (!parameter.other_names.empty()) archive_.names[parameter.name] = parameter.other_names;
    }
    add_marks();
    const size_t parameters = function_.owned.size();
    add_owned(made_.module->named_buffers(), GraphInput::Kind::buffer, function_.owned);
    for (size_t i = parameters; i < function_.owned.size(); ++i) add_buffer(function_.owned[i]);
    for (const auto& item : made_.module->named_modules()) function_.module_types[item.key()] = item.value()->name();
    function_.arguments = [this](const BatchSize& size, int variant) {
      std::vector<at::Tensor> arguments;
      for (const auto& name : model_.arguments)
        arguments.push_back(example(name, size, variant * model_.arguments.size() + arguments.size()));
      return arguments;
    };
    function_.run = [this](const std::vector<at::Tensor>& arguments) { return results(arguments); };
    TracedGraph traced = trace_graph(function_);
    archive_.graph = std::move(traced.graph);
    for (size_t i = 0; i < model_.results.size(); ++i) archive_.graph.outputs[i].name = model_.results[i];
    archive_.constants.merge(traced.constants);
    return std::move(archive_);
  }

 private:
  static constexpr int64_t kLongestOfAll = 8;  // the longest in kTracedSizes

  [[noreturn]] void refuse(const std::string& what, const std::string& advice) const {
    throw ConfigError(cat(archive_.place(), " ", what, "; ", advice));
  }

  bool has_target() const { return labels_.predicts == Predicts::target_row; }
  static bool is_decoders(const std::string& name) { return name.starts_with("decoder_"); }

  template <class Is>
  int place_of_argument(const Is& is) const {
    return std::ranges::find_if(model_.arguments, is) - model_.arguments.begin();
  }

  void check_model() const {
    if (!made_.module || !made_.run) refuse("has no module or nothing to run", "return both from TracedModel::make");
    ProgramUse use{.predicts = labels_.predicts};
    for (const auto& column : model_.columns) {
      if (is_given(column.name, {.predicts = labels_.predicts}))
        refuse(cat("has a column ", column.name, ", a name that is reserved for the data of the task itself"),
               "give it another name");
      use.inputs[column.name] = column.name;
    }
    for (const auto& name : model_.arguments)
      if (!is_given(name, use))
        refuse(cat("takes ", name, ", which the data of its task does not provide"), cat("use ", given_names(use)));
  }

  std::vector<at::Tensor> results(const std::vector<at::Tensor>& arguments) const {
    std::vector<at::Tensor> made;
    try {
      made = made_.run(arguments);
    } catch (const std::invalid_argument& error) {
      refuse(cat("cannot run: ", error.what()), "see TracedModel::arguments");
    }
    if (made.size() != model_.results.size())
      refuse(cat("returns ", made.size(), " tensors, but has names for ", model_.results.size()),
             "see TracedModel::results");
    return made;
  }

  // Adds a buffer with its value before the module is run, which may change it.
  void add_buffer(const OwnedTensor& owned) {
    archive_.buffers.push_back(owned.name);
    if (!owned.other_names.empty()) archive_.names[owned.name] = owned.other_names;
    archive_.constants[owned.name] = owned.tensor.detach().clone();
  }

  void add_marks() {
    std::map<std::string, std::string> names;  // by a parameter's other names
    for (const auto& [name, others] : archive_.names)
      for (const auto& other : others) names[other] = name;
    archive_.marks = split_marks(*made_.module);
    for (auto& mark : archive_.marks)
      if (const auto known = names.find(mark.parameter); known != names.end()) mark.parameter = known->second;
  }

  // An example value for an argument.
  at::Tensor example(const std::string& name, const BatchSize& size, uint64_t variant) const {
    const int64_t length = is_decoders(name) ? size.target : size.length;
    const auto column = std::ranges::find(model_.columns, name, &TensorColumn::name);
    if (column != model_.columns.end()) return example_column(*column, size.batch, variant);
    if (name == "labels") return example_labels(size, variant);
    if (name.ends_with("attention_mask")) return at::ones({size.batch, length}, at::kLong);
    if (name == "token_type_ids") return at::zeros({size.batch, length}, at::kLong);
    if (name == "position_ids") return at::arange(length).repeat({size.batch, 1});
    if (name.ends_with("positions")) return random_words(size.batch, 0, length, variant);
    return random_words(size.batch, length, model_.vocab_size, variant);
  }

  // Numbers from -1 to 1, or whole numbers that may be ids of the vocabulary.
  at::Tensor example_column(const TensorColumn& column, int64_t batch, uint64_t variant) const {
    std::vector<int64_t> sizes = {batch};
    int64_t count = batch;
    for (const int64_t size : column.sizes) count *= sizes.emplace_back(size);
    constexpr int64_t kSteps = 1000;
    const bool is_floating = c10::isFloatingType(column.dtype);
    const int64_t values = is_floating ? 2 * kSteps : std::clamp<int64_t>(model_.vocab_size, 2, 100);
    const at::Tensor whole = random_words(count, 0, values, variant).view(sizes);
    return is_floating ? (whole.to(column.dtype) - kSteps) / kSteps : whole.to(column.dtype);
  }

  at::Tensor example_labels(const BatchSize& size, uint64_t variant) const {
    switch (labels_.predicts) {
      case Predicts::segment:
        if (!labels_.are_numbers) return random_words(size.batch, 0, labels_.count, variant);
        return random_words(size.batch, labels_.count > 1 ? labels_.count : 0, 2, variant).to(at::kFloat);
      case Predicts::row:
        return random_words(size.batch, size.length, labels_.count, variant);
      case Predicts::target_row:
        return random_words(size.batch, size.target, model_.vocab_size, variant);
      default:
        return random_words(size.batch, size.length, model_.vocab_size, variant);
    }
  }

  const TracedModel& model_;
  const TracedLabels labels_;
  const TorchSeed seeded_;
  const TracedModule made_;
  Pt2Archive archive_;
  TracedFunction function_;
};

}  // namespace

Pt2Archive traced_archive(const TracedModel& model, const TracedLabels& labels, uint64_t seed, int64_t longest) {
  return Tracing(model, labels, seed, longest).make();
}

}  // namespace shardline
