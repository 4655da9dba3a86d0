#include "models/families/spec_maker.h"

#include <functional>
#include <numeric>

#include "core/error.h"

namespace shardline {

ParamSource torch_linear(const std::string& hf, std::vector<int64_t> shape) {
  return {.tensor = hf, .shape = std::move(shape)};
}

std::vector<ParamSource> qkv_sources(const std::string& hf, int64_t heads, int64_t head_dim) {
  const int64_t hidden = heads * head_dim;
  std::vector<ParamSource> sources;
  for (const char* part : {"q", "k", "v"})
    sources.push_back({.tensor = cat(hf, part, "_proj.weight"),
                       .view = {1, heads, head_dim, hidden},
                       .offset = {std::ssize(sources), 0, 0, 0},
                       .shape = {hidden, hidden}});
  return sources;
}

namespace {

// Replaces the ending of the name; empty if the name does not have it.
std::string with_ending(const std::string& name, const std::string& ending, const std::string& other) {
  return name.ends_with(ending) ? name.substr(0, name.size() - ending.size()) + other : "";
}

std::vector<std::string> aliases_of(const std::string& tensor, const std::string& base) {
  std::vector<std::string> names = {tensor};
  if (tensor.starts_with(base)) names.push_back(tensor.substr(base.size()));
  for (size_t i = 0, count = names.size(); i < count; ++i)
    for (const auto& older : {with_ending(names[i], "LayerNorm.weight", "LayerNorm.gamma"),
                              with_ending(names[i], "LayerNorm.bias", "LayerNorm.beta")})
      if (!older.empty()) names.push_back(older);
  return {names.begin() + 1, names.end()};
}

}  // namespace

void add_aliases(ModelSpec& spec, const std::string& base) {
  for (auto& layer : spec.layers) {
    for (auto& param : layer.params)
      for (auto& source : param.sources) source.aliases = aliases_of(source.tensor, base);
    const auto ignored = layer.ignored_tensors;
    for (const auto& tensor : ignored)
      for (const auto& alias : aliases_of(tensor, base)) layer.ignored_tensors.push_back(alias);
  }
}

void SpecMaker::add_unit(LayerSpec& layer, const std::string& name, const std::string& parts, int64_t count) const {
  layer.units.push_back({name, parts, count});
  SplitUnit& unit = layer.units.back();
  const auto found = choices.find(layer.full_name(unit));
  if (found == choices.end()) return;
  unit.split = found->second.split;
  unit.why = found->second.why;
}

ParamSpec SpecMaker::of(const SplitUnit& unit, ParamSpec param, int split_dim) const {
  param.split_dim = unit.split ? split_dim : -1;
  param.partial_over_t = !unit.split && sequence_parallel;
  param.row_is_word = unit.parts == kVocabularyWords;
  return param;
}

std::vector<ParamSpec> SpecMaker::norm(const std::string& name, const std::string& hf) const {
  ParamSpec weight = row_bias(name + ".weight", hf + ".weight");
  weight.init.kind = Init::Kind::ones;
  return {weight, row_bias(name + ".bias", hf + ".bias")};
}

ParamSpec SpecMaker::row_bias(const std::string& name, const std::string& hf) const {
  return {.name = name,
          .shape = {hidden},
          .decays = false,
          .partial_over_t = sequence_parallel,
          .sources = {{.tensor = hf}}};
}

ParamSpec SpecMaker::column_bias(const std::string& name, const std::vector<int64_t>& shape,
                                 const std::string& hf) const {
  const int64_t numel = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return {.name = name, .shape = shape, .decays = false, .sources = {{.tensor = hf, .shape = {numel}}}};
}

ParamSpec SpecMaker::table(const std::string& name, std::vector<int64_t> shape, const std::string& hf) const {
  return {.name = name,
          .shape = std::move(shape),
          .init = {Init::Kind::normal, initializer_range},
          .sources = {{.tensor = hf}}};
}

ParamSpec SpecMaker::linear(const std::string& name, std::vector<int64_t> shape, double std,
                            std::vector<ParamSource> sources) const {
  return {.name = name,
          .shape = std::move(shape),
          .init = {Init::Kind::normal, std},
          .deferred = true,
          .sources = std::move(sources)};
}

}  // namespace shardline
