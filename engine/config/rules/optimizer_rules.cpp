#include "engine/config/rules/optimizer_rules.h"

#include <algorithm>
#include <map>

#include "core/error.h"

namespace shardline {
namespace {

using OptimizerKind = OptimizerOptions::Kind;

// Parses "momentum=0.9, nesterov=true" as transformers does.
std::map<std::string, std::string> arguments_in(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  std::map<std::string, std::string> arguments;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string argument = text.substr(begin, end - begin);
    const size_t equals = argument.find('=');
    if (equals == 0 || equals == std::string::npos || argument.find('=', equals + 1) != std::string::npos)
      throw ConfigError(
          cat("\"", argument, "\" is not an argument; write arguments as \"momentum=0.9,nesterov=true\""));
    if (!arguments.emplace(argument.substr(0, equals), argument.substr(equals + 1)).second)
      throw ConfigError(cat("has \"", argument.substr(0, equals), "\" twice; keep one of them"));
    begin = end + 1;
  }
  return arguments;
}

double number_in(const std::string& name, const std::string& text) {
  size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
  }
  if (used == 0 || used != text.size() || !(value >= 0 && value < 1e9))
    throw ConfigError(cat(name, " must be a number >= 0 and < 1e9, not \"", text, "\"; write it as ", name, "=0.9"));
  return value;
}

bool flag_in(const std::string& name, std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* yes : {"true", "1", "yes"})
    if (text == yes) return true;
  for (const char* no : {"false", "0", "no"})
    if (text == no) return false;
  throw ConfigError(cat(name, " must be true or false, not \"", text, "\"; write it as ", name, "=true"));
}

void read_arguments(const TrainingOptions& training, OptimizerOptions& options) {
  for (const auto& [name, text] : arguments_in(training.optim_args.value_or(""))) {
    if (options.kind != OptimizerKind::sgd)
      throw ConfigError(cat("optim \"", word_of(training.optim),
                            "\" takes no arguments; leave optim_args out: adam_beta1, adam_beta2, adam_epsilon and "
                            "weight_decay are keys of their own"));
    if (name == "momentum")
      options.momentum = number_in(name, text);
    else if (name == "dampening")
      options.dampening = number_in(name, text);
    else if (name == "nesterov")
      options.nesterov = flag_in(name, text);
    else if (name == "weight_decay")
      throw ConfigError("weight_decay has no effect here in transformers either; use training.weight_decay");
    else
      throw ConfigError(cat("optim \"sgd\" has no argument \"", name, "\"; it takes momentum, dampening and nesterov"));
  }
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0))
    throw ConfigError("nesterov needs a momentum above 0 and no dampening; write it as \"momentum=0.9,nesterov=true\"");
}

}  // namespace

OptimizerOptions::Kind optimizer_kind(Optim optim) {
  switch (optim) {
    case Optim::adamw_torch_fused:
    case Optim::adamw_torch:
      return OptimizerKind::adamw;
    case Optim::adam:
      return OptimizerKind::adam;
    case Optim::sgd:
      return OptimizerKind::sgd;
    case Optim::adafactor:
      return OptimizerKind::adafactor;
    case Optim::added:
      return OptimizerKind::added;
  }
  return {};
}

OptimizerOptions optimizer_options(const TrainingOptions& training) {
  OptimizerOptions options{.kind = optimizer_kind(training.optim),
                           .weight_decay = training.weight_decay,
                           .max_gradient_value = training.max_grad_value,
                           .beta1 = training.adam_beta1,
                           .beta2 = training.adam_beta2,
                           .epsilon = training.adam_epsilon,
                           .added = training.optim.added};
  read_arguments(training, options);
  return options;
}

}  // namespace shardline
