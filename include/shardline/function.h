// Custom gradients in traced models. A trace sees the calls of a torch::autograd::Function's forward, but not its
// backward, so a function that a module applies directly is refused. Applied as an operator, it is one call of the
// model's graph, and training runs its own forward and backward:
//
//   struct Clipped : torch::autograd::Function<Clipped> {
//     static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x, double limit);
//     static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
//     torch::autograd::variable_list);
//   };
//   ... x = shardline::apply_function<Clipped>(x, 0.5);  // in place of Clipped::apply(x, 0.5)
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace shardline {
namespace function_parts {

inline constexpr const char* kLibrary = "shardline_functions";

// The type of an argument in an operator's schema, which has one integer type and one floating-point type.
template <class Argument, class Plain = std::decay_t<Argument>>
using InSchema =
    std::conditional_t<std::is_same_v<Plain, bool>, bool,
                       std::conditional_t<std::is_integral_v<Plain>, int64_t,
                                          std::conditional_t<std::is_floating_point_v<Plain>, double, Plain>>>;

template <class Function, class Forward>
struct Operator;

template <class Function, class Result, class... Arguments>
struct Operator<Function, Result (*)(torch::autograd::AutogradContext*, Arguments...)> {
  static Result without_gradient(InSchema<Arguments>... arguments) {
    torch::autograd::AutogradContext unused;
    const at::AutoGradMode no_grad(false);
    return Function::forward(&unused, arguments...);
  }
  static Result with_gradient(InSchema<Arguments>... arguments) { return Function::apply(arguments...); }

  static Result call(InSchema<Arguments>... arguments) {
    static const std::string name = std::string("of_") + typeid(Function).name();
    [[maybe_unused]] static const torch::Library library = [] {
      torch::Library made(torch::Library::FRAGMENT, kLibrary, std::nullopt, __FILE__, __LINE__);
      made.def(name.c_str(), torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, &without_gradient));
      made.impl(name.c_str(), torch::dispatch(c10::DispatchKey::Autograd, &with_gradient));
      return made;
    }();
    static const auto handle = c10::Dispatcher::singleton()
                                   .findSchemaOrThrow((std::string(kLibrary) + "::" + name).c_str(), "")
                                   .template typed<Result(InSchema<Arguments>...)>();
    return handle.call(std::move(arguments)...);
  }
};

}  // namespace function_parts

// What Function::apply(arguments...) returns. Its forward must be one function of tensors, std::optional tensors,
// numbers and bools that returns a tensor or a variable_list. Functions with the same mangled name, as in anonymous
// namespaces of two files, throw a c10::Error: give them different names.
template <class Function, class... Arguments>
auto apply_function(Arguments&&... arguments) {
  return function_parts::Operator<Function, decltype(&Function::forward)>::call(std::forward<Arguments>(arguments)...);
}

}  // namespace shardline
