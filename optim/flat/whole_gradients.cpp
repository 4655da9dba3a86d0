#include "optim/flat/whole_gradients.h"

#include <ATen/ops/full.h>

#include <limits>
#include <vector>

namespace shardline {

std::map<std::string, at::Tensor> whole_gradients(StageParameters& parameters, const ModelSpec& spec) {
  std::vector<std::string> names;  // by parameter number
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params)
      if (param.tied_to.empty()) names.push_back(layer.full_name(param));
  const RankGroups& groups = parameters.groups();
  const int t_degree = groups.mesh.t();
  const auto none = at::TensorOptions(parameters.trained_type());
  std::map<std::string, at::Tensor> whole;
  for (const auto& [number, param] : parameters.trained_parameters())
    whole[names[number]] =
        at::full(param->local_shape(groups.coordinates.t, t_degree), -std::numeric_limits<double>::infinity(), none);
  parameters.bring_gradients();
  for (const auto& range : parameters.trained_ranges()) {
    if (range.await_gradients) range.await_gradients();
    for (const auto& piece : range.pieces)
      whole.at(names[piece.number])
          .view(-1)
          .narrow(0, piece.offset, piece.length)
          .copy_(range.gradients.narrow(0, piece.begin, piece.length));
  }
  for (const auto& [number, param] : parameters.trained_parameters()) {
    auto& holders = sharing_of(*param, t_degree) == Sharing::partial ? *groups.dp : *groups.rdp;
    const at::Tensor carried = whole.at(names[number]).to(parameters.device());
    holders.all_reduce(carried, {.op = ReduceOp::max})->wait();
    whole.at(names[number]) = carried.cpu();
  }
  return whole;
}

}  // namespace shardline
