#include "core/model/model_spec.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/error.h"

namespace shardline {

Range split_range(int64_t count, int parts, int index) {
  const int64_t whole = count / parts, longer = count % parts;
  return {index * whole + std::min<int64_t>(index, longer), whole + (index < longer ? 1 : 0)};
}

int64_t ParamSpec::numel() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

Range ParamSpec::split(int t, int t_degree) const {
  if (split_dim < 0) return {};
  return split_range(shape[split_dim], t_degree, t);
}

std::vector<int64_t> ParamSpec::local_shape(int t, int t_degree) const {
  auto local = shape;
  if (split_dim >= 0) local[split_dim] = split(t, t_degree).length;
  return local;
}

std::string layer_kind(const LayerSpec& layer) {
  nlohmann::json params = nlohmann::json::array(), output = nlohmann::json::array();
  for (const auto& param : layer.params) params.push_back({param.shape, param.split_dim, param.trainable});
  for (const auto& tensor : layer.output) output.push_back(tensor.shape);
  nlohmann::json kind = {params, output, layer.is_block};
  if (!layer.code.empty()) kind.push_back(layer.code);
  if (!layer.has_backward) kind.push_back("forward only");
  return kind.dump();
}

int64_t ModelSpec::parameter_count() const {
  int64_t count = 0;
  for (const auto& layer : layers)
    for (const auto& param : layer.params)
      if (param.tied_to.empty()) count += param.numel();
  return count;
}

int64_t ModelSpec::trained_count() const {
  int64_t count = 0;
  for (const auto& layer : layers)
    for (const auto& param : layer.params)
      if (param.tied_to.empty() && param.trainable) count += param.numel();
  return count;
}

int ModelSpec::block_count() const {
  return std::count_if(layers.begin(), layers.end(), [](const auto& layer) { return layer.is_block; });
}

int ModelSpec::first_with_backward() const {
  return std::ranges::find_if(layers, &LayerSpec::has_backward) - layers.begin();
}

const ParamSpec& ModelSpec::param(const std::string& full_name) const {
  for (const auto& layer : layers)
    for (const auto& param : layer.params)
      if (layer.full_name(param) == full_name) return param;
  throw InvariantError(cat("the model has no parameter ", full_name));
}

void to_json(nlohmann::json& json, const ModelSpec& spec) {
  json = {{"family", spec.family},
          {"parameters", spec.parameter_count()},
          {"vocab_size", spec.vocab_size},
          {"layers", nlohmann::json::array()}};
  for (const auto& layer : spec.layers) {
    nlohmann::json params = nlohmann::json::array();
    for (const auto& param : layer.params)
      params.push_back({{"name", layer.full_name(param)},
                        {"shape", param.shape},
                        {"split_dim", param.split_dim},
                        {"tied_to", param.tied_to},
                        {"trainable", param.trainable},
                        {"decays", param.decays}});
    json["layers"].push_back({{"name", layer.name}, {"is_block", layer.is_block}, {"params", params}});
  }
}

}  // namespace shardline
