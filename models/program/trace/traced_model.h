// A torch::nn::Module, or anything that computes with tensors, as a model that is traced: cut into layers, placed on
// stages and split over tensor-parallel ranks like an exported program. Modules need no base class and no changes.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/model/microbatch.h"

namespace torch::nn {
class Module;
}

namespace shardline {

struct TracedModule {
  std::shared_ptr<torch::nn::Module> module;  // the module whose parameters are trained
  // Maps the arguments of the TracedModel to its results, both in order. It is run at several sizes.
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& arguments)> run;
};

struct TracedModel {
  int64_t vocab_size = 0;     // of input_ids and, in language models, of labels; not needed for columns with classes
  int64_t max_positions = 0;  // 0: determined by its tables of positions
  // What the module takes, by the names listed in docs/programs.md ("Arguments and tasks"), and what it returns: logits
  // of each token or of each sample, a loss, or both.
  std::vector<std::string> arguments = {"input_ids"};
  std::vector<std::string> results = {"logits"};
  // The arguments that are columns of the data whose values are tensors, such as images or plain numbers, [batch,
  // sizes...]. Such a model takes no token ids. The data have columns of these names, unless model.inputs has others.
  std::vector<TensorColumn> columns = {};
  // Creates the module. Its initial values may come from torch's generator, which is seeded before, and must not depend
  // on anything else. Called on every rank, and must create the same module each time.
  std::function<TracedModule()> make;
  std::string name = "";  // for messages; the name under which it was registered
};

namespace traced_module_parts {

inline std::vector<at::Tensor> listed(const at::Tensor& result) {
  return {result};
}
inline std::vector<at::Tensor> listed(std::vector<at::Tensor> results) {
  return results;
}
template <class... Tensors>
std::vector<at::Tensor> listed(const std::tuple<Tensors...>& results) {
  return std::apply([](const auto&... each) { return std::vector<at::Tensor>{each...}; }, results);
}

template <size_t count, class Module, class Forward>
TracedModule of(const std::shared_ptr<Module>& module, Forward forward) {
  return {module, [module, forward](const std::vector<at::Tensor>& arguments) {
            if (arguments.size() != count)
              throw std::invalid_argument("forward takes " + std::to_string(count) + " tensors, but the model has " +
                                          std::to_string(arguments.size()) + " arguments");
            return [&]<size_t... i>(std::index_sequence<i...>) {
              return listed((module.get()->*forward)(arguments[i]...));
            }
            (std::make_index_sequence<count>());
          }};
}

}  // namespace traced_module_parts

// Wraps a module and the method that computes its results: a tensor, or a tuple or a vector of tensors.
//
//   .make = [=] { return traced_module(std::make_shared<Net>(width), &Net::forward); }
template <class Module, class Base, class Result, class... Arguments>
TracedModule traced_module(const std::shared_ptr<Module>& module, Result (Base::*forward)(Arguments...)) {
  return traced_module_parts::of<sizeof...(Arguments)>(module, forward);
}
template <class Module, class Base, class Result, class... Arguments>
TracedModule traced_module(const std::shared_ptr<Module>& module, Result (Base::*forward)(Arguments...) const) {
  return traced_module_parts::of<sizeof...(Arguments)>(module, forward);
}

}  // namespace shardline
