#include "models/program/trace/traced_archive.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <torch/nn/module.h>

#include <set>
#include <utility>

#include "core/error.h"
#include "core/numbers/philox.h"
#include "models/graph/torch_seed.h"
#include "models/program/trace/traced_graph.h"

namespace shardline {
namespace {

constexpr uint64_t kArgumentSeed = 1234;

// The values of parameters, one after the other.
class MemoryTensors : public TensorFile {
 public:
  MemoryTensors(const std::string& name, const std::vector<OwnedTensor>& tensors)
      : MemoryTensors(name, std::make_shared<const std::string>(bytes_of_all(tensors))) {
    uint64_t begin = 0;
    for (const auto& [tensor_name, kind, tensor] : tensors) {
      const auto shape = tensor.sizes().vec();
      tensors_.emplace(tensor_name, entry_in(data_.substr(begin, tensor.nbytes()), tensor_name, tensor.scalar_type(),
                                             shape, row_major_strides(shape), 0));
      begin += tensor.nbytes();
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

// Adds tensors under their first names; further names of the same tensor go to `others` by its first name.
void add_owned(const torch::OrderedDict<std::string, at::Tensor>& tensors, GraphInput::Kind kind,
               std::vector<OwnedTensor>& owned, std::map<std::string, std::vector<std::string>>& others) {
  std::map<const at::TensorImpl*, std::string> first_names;
  for (const auto& item : tensors) {
    const auto [first, is_new] = first_names.emplace(item.value().unsafeGetTensorImpl(), item.key());
    if (is_new)
      owned.push_back({item.key(), kind, item.value()});
    else
      others[first->second].push_back(item.key());
  }
}

at::Tensor random_ids(const BatchSize& size, int64_t words, uint64_t variant) {
  auto ids = at::empty({size.batch, size.length}, at::kLong);
  const RandomStream stream{.seed = kArgumentSeed + variant};
  for (int64_t i = 0; i < ids.numel(); ++i) ids.data_ptr<int64_t>()[i] = random_word(stream, i) % words;
  return ids;
}

}  // namespace

Pt2Archive traced_archive(const TracedModel& model, uint64_t seed) {
  const TorchSeed seeded(seed);
  const TracedInstance instance = model.make();
  if (!instance.module) throw ConfigError(cat("model ", model.name, " makes no module; return one"));
  instance.module->train();

  Pt2Archive archive{.path = cat("model ", model.name)};
  TracedFunction function{.name = archive.path, .argument_names = model.arguments};
  add_owned(instance.module->named_parameters(), GraphInput::Kind::parameter, function.owned, archive.names);
  archive.weights = std::make_shared<MemoryTensors>(archive.path, function.owned);
  for (const auto& parameter : function.owned) archive.trainable[parameter.name] = parameter.tensor.requires_grad();
  std::map<std::string, std::vector<std::string>> ignored;
  add_owned(instance.module->named_buffers(), GraphInput::Kind::buffer, function.owned, ignored);

  for (const auto& item : instance.module->named_modules()) function.module_types[item.key()] = item.value()->name();
  function.arguments = [&](const BatchSize& size, int variant) {
    std::vector<at::Tensor> arguments;
    for (size_t i = 0; i < model.arguments.size(); ++i) {
      const auto ids = random_ids(size, model.vocab_size, variant * model.arguments.size() + i);
      arguments.push_back(model.arguments[i] == "attention_mask" ? at::ones_like(ids) : ids);
    }
    return arguments;
  };
  function.run = [&](const std::vector<at::Tensor>& arguments) {
    std::map<std::string, at::Tensor> by_name;
    for (size_t i = 0; i < arguments.size(); ++i) by_name.emplace(model.arguments[i], arguments[i]);
    return instance.run(by_name);
  };
  TracedGraph traced = trace_graph(function);
  archive.graph = std::move(traced.graph);
  for (size_t i = 0; const char* name : {"loss", "logits"})
    if (i < archive.graph.outputs.size()) archive.graph.outputs[i++].name = name;
  archive.constants = std::move(traced.constants);
  for (const auto& owned : function.owned)
    if (owned.kind == GraphInput::Kind::buffer) archive.constants.emplace(owned.name, owned.tensor.detach());
  return archive;
}

}  // namespace shardline
