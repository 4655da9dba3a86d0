#include "optim/stage_parameters.h"

#include <algorithm>

#include "core/error.h"

namespace shardline {

StageParameters::StageParameters(const ModelSpec& spec, const std::vector<int>& stage_of_layer,
                                 const RankGroups& groups, at::ScalarType dtype, at::Device device, bool trains)
    : spec_(spec), groups_(groups), dtype_(dtype), device_(device), trains_(trains), layers_(spec.layers.size()) {
  for (const auto& layer : spec_.layers) {
    layer_names_.push_back("gradients of " + layer.name);
    for (const auto& param : layer.params)
      if (param.tied_to.empty()) numbers_.push_back(layer.full_name(param));
  }
  find_ties(stage_of_layer);
  for (size_t layer = 0; layer < spec_.layers.size(); ++layer)
    if (stage_of_layer[layer] == groups_.at.p) build_layer(static_cast<int>(layer));
}

void StageParameters::find_ties(const std::vector<int>& stage_of_layer) {
  for (const auto& layer : spec_.layers)
    for (const auto& param : layer.params) {
      const bool known =
          std::any_of(ties_.begin(), ties_.end(), [&](const Tie& tie) { return tie.name == param.tied_to; });
      if (!param.tied_to.empty() && !known)
        ties_.push_back({.name = param.tied_to, .buffer = {}, .uses = {}, .stages = {}, .holders = {}});
    }
  for (auto& tie : ties_) {
    const ParamSpec& source = spec_.param(tie.name);
    for (size_t l = 0; l < spec_.layers.size(); ++l)
      for (const auto& param : spec_.layers[l].params) {
        if (param.tied_to != tie.name && spec_.layers[l].full_name(param) != tie.name) continue;
        SL_ASSERT(param.shape == source.shape && param.split_dim == source.split_dim, "tied to ", tie.name);
        if (tie.stages.empty() || tie.stages.back() != stage_of_layer[l]) tie.stages.push_back(stage_of_layer[l]);
        if (stage_of_layer[l] != groups_.at.p) continue;
        if (!tie.buffer)
          tie.buffer.emplace(std::vector<NamedParam>{{tie.name, &source}}, groups_.at.t, groups_.mesh.t(), dtype_,
                             device_);
        auto use = std::make_unique<Use>();
        use->layer = static_cast<int>(l);
        if (trains_) use->gradients = tie.buffer->make_gradients();
        use->parameter = tie.buffer->views(use->gradients).front();
        tie.uses.push_back(std::move(use));
      }
    if (tie.stages.size() == 1) continue;
    Coordinates first = groups_.at;
    first.p = tie.stages.front();
    const int color = tie.buffer ? groups_.mesh.rank(first) : groups_.mesh.size();  // all others: one idle group
    auto comm = groups_.device_world->split(color, "tie");
    if (tie.buffer) tie.holders = std::move(comm);
  }
}

void StageParameters::build_layer(int layer) {
  const LayerSpec& spec = spec_.layers[static_cast<size_t>(layer)];
  auto params = std::make_unique<LayerParams>();
  std::vector<NamedParam> own;
  const auto tied_use = [&](const ParamSpec& param) -> Parameter* {
    const std::string name = param.tied_to.empty() ? spec.full_name(param) : param.tied_to;
    for (auto& tie : ties_)
      for (auto& use : tie.uses)
        if (tie.name == name && use->layer == layer) return &use->parameter;
    return nullptr;
  };
  for (const auto& param : spec.params)
    if (!tied_use(param)) own.push_back({spec.full_name(param), &param});
  params->buffer.emplace(own, groups_.at.t, groups_.mesh.t(), dtype_, device_);
  if (trains_) params->gradients = params->buffer->make_gradients();
  params->own = params->buffer->views(params->gradients);
  size_t next = 0;
  for (const auto& param : spec.params) {
    Parameter* tied = tied_use(param);
    params->in_spec_order.push_back(tied ? tied : &params->own[next++]);
  }
  layers_[static_cast<size_t>(layer)] = std::move(params);
}

std::vector<Parameter*> StageParameters::layer_params(int layer) {
  SL_ASSERT(layers_[static_cast<size_t>(layer)], "layer ", layer, " is not on this stage");
  return layers_[static_cast<size_t>(layer)]->in_spec_order;
}

std::vector<Parameter*> StageParameters::stored() {
  std::vector<Parameter*> all;
  for (auto& tie : ties_)
    if (!tie.uses.empty()) all.push_back(&tie.uses.front()->parameter);
  for (auto& layer : layers_)
    if (layer)
      for (auto& parameter : layer->own) all.push_back(&parameter);
  return all;
}

bool StageParameters::writes(const Parameter& parameter) const {
  if (groups_.at.d != 0) return false;
  if (sharing_of(*parameter.spec, groups_.mesh.t()) != Sharing::split && groups_.at.t != 0) return false;
  for (const auto& tie : ties_)
    if (tie.name == parameter.name) return tie.stages.front() == groups_.at.p;
  return true;
}

void StageParameters::zero_gradients() {
  for (auto& layer : layers_)
    if (layer && layer->gradients.defined()) layer->gradients.zero_();
  for (auto& tie : ties_)
    for (auto& use : tie.uses)
      if (use->gradients.defined()) use->gradients.zero_();
}

void StageParameters::reduce(const at::Tensor& gradients, const Segment& segment, const std::string& what) {
  Communicator& comm = segment.sharing == Sharing::partial ? *groups_.dp : *groups_.rdp;
  if (comm.size() == 1 || segment.length == 0) return;
  pending_.push_back(comm.all_reduce(gradients.narrow(0, segment.begin, segment.length), {.what = what.c_str()}));
}

void StageParameters::gradients_ready(int layer) {
  const auto& params = *layers_[static_cast<size_t>(layer)];
  const std::string& what = layer_names_[static_cast<size_t>(layer)];
  for (const auto& segment : params.buffer->segments())
    if (segment.trainable) reduce(params.gradients, segment, what);
  for (auto& tie : ties_)
    for (auto& use : tie.uses)
      if (use->layer == layer && use->gradients.defined()) reduce(use->gradients, tie.buffer->segments().front(), what);
}

void StageParameters::finish_gradients() {
  for (auto& work : pending_) work->wait();
  pending_.clear();
  for (auto& tie : ties_) {
    if (tie.uses.empty() || tie.buffer->trainable_elements() == 0) continue;
    auto& total = tie.uses.front()->gradients;
    for (size_t i = 1; i < tie.uses.size(); ++i) total.add_(tie.uses[i]->gradients);
    if (tie.holders) tie.holders->all_reduce(total, {.what = "join the uses of a tied parameter"})->wait();
  }
}

std::vector<TrainedRange> StageParameters::trained_ranges() const {
  std::vector<TrainedRange> ranges;
  const auto add = [&](const FlatBuffer& buffer, const at::Tensor& gradients) {
    for (const auto& segment : buffer.segments())
      if (segment.trainable && segment.length > 0)
        ranges.push_back({buffer.values().narrow(0, segment.begin, segment.length),
                          gradients.narrow(0, segment.begin, segment.length), segment.decays,
                          pieces_in(buffer, segment)});
  };
  for (const auto& tie : ties_)
    if (!tie.uses.empty()) add(*tie.buffer, tie.uses.front()->gradients);
  for (const auto& layer : layers_)
    if (layer) add(*layer->buffer, layer->gradients);
  return ranges;
}

std::vector<TrainedPiece> StageParameters::pieces_in(const FlatBuffer& buffer, const Segment& segment) const {
  std::vector<TrainedPiece> pieces;
  for (const auto& parameter : buffer.views({})) {
    const int64_t begin = parameter.value.storage_offset() - segment.begin, length = parameter.value.numel();
    if (length == 0 || begin < 0 || begin >= segment.length) continue;
    pieces.push_back({.spec = parameter.spec,
                      .number = number_of(parameter.name),
                      .begin = begin,
                      .length = length,
                      .counted = is_split(*parameter.spec) || groups_.at.t == 0});
  }
  return pieces;
}

std::vector<TrainedParameter> StageParameters::trained_parameters() const {
  std::vector<TrainedParameter> parameters;
  const auto add = [&](const Parameter& parameter) {
    if (parameter.spec->trainable) parameters.push_back({number_of(parameter.name), parameter.spec});
  };
  for (const auto& tie : ties_)
    if (!tie.uses.empty()) add(tie.uses.front()->parameter);
  for (const auto& layer : layers_)
    if (layer)
      for (const auto& parameter : layer->own) add(parameter);
  return parameters;
}

int StageParameters::number_of(const std::string& name) const {
  return static_cast<int>(std::find(numbers_.begin(), numbers_.end(), name) - numbers_.begin());
}

bool StageParameters::is_split(const ParamSpec& spec) const {
  return sharing_of(spec, groups_.mesh.t()) == Sharing::split;
}

std::vector<LogicalGradient> StageParameters::logical_gradients() const {
  std::vector<LogicalGradient> gradients;
  const auto add = [&](const Parameter& parameter, bool first_holder) {
    if (!parameter.grad.defined()) return;
    gradients.push_back(
        {number_of(parameter.name), &parameter, first_holder && (is_split(*parameter.spec) || groups_.at.t == 0)});
  };
  for (const auto& tie : ties_)
    if (!tie.uses.empty()) add(tie.uses.front()->parameter, tie.stages.front() == groups_.at.p);
  for (const auto& layer : layers_)
    if (layer)
      for (const auto& parameter : layer->own) add(parameter, true);
  return gradients;
}

}  // namespace shardline
