#include "models/program/split/program_specs.h"

#include <mutex>

#include "core/error.h"

namespace shardline {

ProgramSpecs::ProgramSpecs(const std::shared_ptr<const Program>& program, int64_t traced_length)
    : program_(program),
      traced_length_(traced_length),
      whole_(spec_of_program(program, traced_length)),
      splitter_(std::make_shared<ProgramSplitter>(program, whole_)),
      made_(std::make_shared<std::map<std::string, ModelSpec>>()) {}

ModelSpec ProgramSpecs::with_units(const SplitChoices& choices) const {
  ModelSpec spec = whole_;
  const auto split = splitter_->split(2, choices);
  for (size_t layer = 0; layer < spec.layers.size(); ++layer) spec.layers[layer].units = split->units[layer];
  return spec;
}

ModelSpec ProgramSpecs::undivided(const SplitChoices& choices, const std::string& why) const {
  for (const auto& [unit, choice] : choices)
    if (choice.split)
      throw ConfigError(
          cat("/smp_options/tensor_parallel_layers: ", unit, " cannot be split (", why, "); leave it out of the list"));
  ModelSpec spec = with_units({});
  spec.variant = cat("nothing is split: ", why);
  for (auto& layer : spec.layers)
    for (auto& unit : layer.units) {
      unit.split = false;
      unit.why = why;
    }
  return spec;
}

ModelSpec ProgramSpecs::split(int ranks, const SplitChoices& choices) const {
  const auto split = splitter_->split(ranks, choices);
  std::string key = cat(ranks);
  for (const auto& [name, of] : split->parameters) key += cat(' ', name, '/', of.dimension, '/', of.before);
  static std::mutex making;  // ranks may be threads
  const std::scoped_lock lock(making);
  const auto [made, is_new] = made_->try_emplace(key);
  if (is_new) made->second = spec_of_program(program_, traced_length_, split);
  ModelSpec spec = made->second;
  spec.variant = cat(100 * split->share, " % of the products with weights are split");
  for (size_t layer = 0; layer < spec.layers.size(); ++layer) {
    spec.layers[layer].units = split->units[layer];
    spec.layers[layer].flops_per_token = whole_.layers[layer].flops_per_token;
  }
  return spec;
}

}  // namespace shardline
