#include "models/program/split/program_specs.h"

#include <mutex>

#include "core/error.h"
#include "core/number_text.h"

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

ModelSpec ProgramSpecs::split(int ranks, const SplitChoices& choices, bool divides_rows) const {
  const auto split = splitter_->split(ranks, choices, divides_rows);
  std::string key = cat(ranks, divides_rows ? " rows" : "");
  for (const auto& [name, of] : split->parameters) {
    key += cat(' ', name, '/', of.dimension, '/', of.before);
    for (const auto& section : of.sections) key += section.is_divided ? 's' : 'w';
  }
  static std::mutex making;  // ranks may be threads
  const std::scoped_lock lock(making);
  const auto [made, is_new] = made_->try_emplace(key);
  if (is_new) made->second = spec_of_program(program_, traced_length_, split);
  ModelSpec spec = made->second;
  spec.variant = format_decimals(100 * split->share, 1) + " % of the products with weights are split";
  if (divides_rows && program_->has_target()) spec.variant += "; rows are divided between layers, not inside them";
  for (size_t layer = 0; layer < spec.layers.size(); ++layer) {
    spec.layers[layer].units = split->units[layer];
    spec.layers[layer].flops_per_token = whole_.layers[layer].flops_per_token;
  }
  return spec;
}

}  // namespace shardline
