#include "optim/flat/stage_parameters.h"

#include <ATen/OpMathType.h>

#include <algorithm>

#include "core/error.h"

namespace shardline {
namespace {

// The parameter's view in the flat tensors of the segments.
at::Tensor view_in(const std::vector<at::Tensor>& segments, const FlatLayout::Place& place) {
  return segments[place.segment].narrow(0, place.begin, place.length).view(place.shape);
}

}  // namespace

StageParameters::StageParameters(const StageSetup& setup)
    : spec_(setup.spec),
      groups_(setup.groups),
      sharding_(setup.sharding),
      options_(setup.values),
      trains_(setup.trains),
      host_(setup.host),
      shard_groups_(groups_, sharding_, setup.values.device()),
      layers_(setup.spec.layers.size()),
      pass_values_(setup.spec.layers.size(), sharding_),
      reductions_(setup.spec.layers.size(), sharding_) {
  for (const auto& layer : spec_.layers)
    for (const auto& param : layer.params)
      if (param.tied_to.empty()) numbers_.push_back(layer.full_name(param));
  find_ties(setup.stage_of_layer);
  for (int layer = 0; layer < std::ssize(spec_.layers); ++layer)
    if (setup.stage_of_layer[layer] == groups_.coordinates.p) build_layer(layer);
}

StageParameters::Buffer StageParameters::make_buffer(const std::vector<NamedParam>& params) const {
  Buffer buffer{flat_layout(params, groups_.coordinates.t, groups_.mesh.t(), sharding_), {}, {}};
  for (const auto& segment : buffer.layout.segments)
    buffer.values.emplace_back(segment, sharding_.level, shard_groups_.shards_of(segment), options_, trains_, host_);
  return buffer;
}

std::vector<FlatGradients> StageParameters::make_gradients(const FlatLayout& layout, const HostLinkPtr& host) const {
  std::vector<FlatGradients> gradients;
  for (const auto& segment : layout.segments)
    if (trains_ && segment.trainable)
      gradients.emplace_back(segment, sharding_.level, shard_groups_.shards_of(segment),
                             shard_groups_.replicas_of(segment), options_, host);
  return gradients;
}

std::vector<Parameter> StageParameters::views(const Buffer& buffer, const std::vector<FlatGradients>& gradients) const {
  std::vector<Parameter> parameters;
  for (const auto& place : buffer.layout.places) {
    const auto view = [&](const at::Tensor& flat) {
      return flat.narrow(0, place.begin, place.length).view(place.shape);
    };
    Parameter parameter{place.param.full_name, place.param.spec, view(buffer.values[place.segment].whole()), {}};
    if (place.segment < gradients.size()) parameter.grad = view(gradients[place.segment].whole());
    parameters.push_back(std::move(parameter));
  }
  return parameters;
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
        if (stage_of_layer[l] != groups_.coordinates.p) continue;
        if (!tie.buffer) tie.buffer = make_buffer({{tie.name, &source}});
        auto use = std::make_unique<Use>();
        use->layer = l;
        use->gradients = make_gradients(tie.buffer->layout, tie.uses.empty() ? host_ : nullptr);  // holds the sum
        use->parameter = views(*tie.buffer, use->gradients).front();
        tie.uses.push_back(std::move(use));
      }
    if (tie.stages.size() == 1) continue;
    Coordinates first = groups_.coordinates;
    first.p = tie.stages.front();
    const int color = tie.buffer ? groups_.mesh.rank(first) : groups_.mesh.size();  // all others: one idle group
    auto comm = groups_.device_world->split(color, "tie");
    if (tie.buffer) tie.holders = std::move(comm);
  }
}

void StageParameters::build_layer(int layer) {
  const LayerSpec& spec = spec_.layers[layer];
  auto params = std::make_unique<LayerParams>();
  std::vector<FlatValues*> values;
  std::vector<FlatGradients*> gradients;
  const auto add_values = [&](Buffer& buffer) {
    for (auto& segment : buffer.values) values.push_back(&segment);
  };
  const auto add_gradients = [&](std::vector<FlatGradients>& segments) {
    for (auto& segment : segments) gradients.push_back(&segment);
  };
  std::vector<NamedParam> own;
  const auto tied_use = [&](const ParamSpec& param) -> Parameter* {
    const std::string name = param.tied_to.empty() ? spec.full_name(param) : param.tied_to;
    for (auto& tie : ties_)
      for (auto& use : tie.uses)
        if (tie.name == name && use->layer == layer) {
          add_values(*tie.buffer);
          return &use->parameter;
        }
    return nullptr;
  };
  for (const auto& param : spec.params) {
    params->in_spec_order.push_back(tied_use(param));
    if (!params->in_spec_order.back()) own.push_back({spec.full_name(param), &param});
  }
  params->buffer = make_buffer(own);
  params->buffer.gradients = make_gradients(params->buffer.layout, host_);
  params->own = views(params->buffer, params->buffer.gradients);
  size_t next = 0;
  for (auto& parameter : params->in_spec_order)
    if (!parameter) parameter = &params->own[next++];

  add_values(params->buffer);
  add_gradients(params->buffer.gradients);
  for (auto& tie : ties_)
    for (auto& use : tie.uses)
      if (use->layer == layer) add_gradients(use->gradients);
  pass_values_.add_layer(layer, std::move(values));
  reductions_.add_layer(layer, "gradients of " + spec.name, gradients);
  layers_[layer] = std::move(params);
}

at::ScalarType StageParameters::trained_type() const {
  return at::toOpMathType(c10::typeMetaToScalarType(options_.dtype()));
}

std::vector<Parameter*> StageParameters::layer_params(int layer) {
  SL_ASSERT(layers_[layer], "layer ", layer, " is not on this stage");
  return layers_[layer]->in_spec_order;
}

bool StageParameters::writes(const Parameter& parameter) const {
  if (groups_.coordinates.d != 0) return false;
  if (sharing_of(*parameter.spec, groups_.mesh.t()) != Sharing::split && groups_.coordinates.t != 0) return false;
  for (const auto& tie : ties_)
    if (tie.name == parameter.name) return tie.stages.front() == groups_.coordinates.p;
  return true;
}

// ---- all buffers

void StageParameters::visit_buffers(
    const std::function<void(Buffer&, std::vector<Parameter*>, std::vector<FlatGradients>&)>& see) {
  for (auto& tie : ties_)
    if (!tie.uses.empty()) see(*tie.buffer, {&tie.uses.front()->parameter}, tie.uses.front()->gradients);
  for (auto& layer : layers_) {
    if (!layer) continue;
    std::vector<Parameter*> own;
    for (auto& parameter : layer->own) own.push_back(&parameter);
    see(layer->buffer, own, layer->buffer.gradients);
  }
}

std::vector<Parameter*> StageParameters::stored() {
  std::vector<Parameter*> all;
  visit_buffers([&](Buffer&, const std::vector<Parameter*>& parameters, std::vector<FlatGradients>&) {
    all.insert(all.end(), parameters.begin(), parameters.end());
  });
  return all;
}

void StageParameters::fill_values(const std::function<void(Parameter&)>& fill) {
  visit_buffers([&](Buffer& buffer, const std::vector<Parameter*>& parameters, std::vector<FlatGradients>&) {
    std::vector<at::Tensor> whole;
    for (auto& values : buffer.values) whole.push_back(values.begin_filling());
    for (size_t i = 0; i < parameters.size(); ++i) {
      Parameter filled{parameters[i]->name, parameters[i]->spec, view_in(whole, buffer.layout.places[i]), {}};
      fill(filled);
    }
    for (auto& values : buffer.values) values.end_filling();
  });
}

void StageParameters::visit_values(const std::function<void(const Parameter&)>& see,
                                   const std::function<void(Work&)>& await) {
  visit_buffers([&](Buffer& buffer, const std::vector<Parameter*>& parameters, std::vector<FlatGradients>&) {
    std::vector<at::Tensor> whole;
    for (auto& values : buffer.values) whole.push_back(values.gather(await));
    for (size_t i = 0; i < parameters.size(); ++i)
      see({parameters[i]->name, parameters[i]->spec, view_in(whole, buffer.layout.places[i]), {}});
  });
}

void StageParameters::publish_values() {
  visit_buffers([&](Buffer& buffer, const std::vector<Parameter*>&, std::vector<FlatGradients>&) {
    for (auto& values : buffer.values) values.publish();
  });
}

// ---- gradients

void StageParameters::zero_gradients() {
  visit_buffers([&](Buffer&, const std::vector<Parameter*>&, std::vector<FlatGradients>& gradients) {
    for (auto& segment : gradients) segment.zero();
  });
  for (auto& tie : ties_)
    for (size_t use = 1; use < tie.uses.size(); ++use)
      for (auto& segment : tie.uses[use]->gradients) segment.zero();
}

void StageParameters::finish_gradients() {
  reductions_.finish();
  for (auto& tie : ties_) {
    if (tie.uses.empty() || tie.uses.front()->gradients.empty()) continue;
    const auto& total = tie.uses.front()->gradients.front().own();
    for (size_t i = 1; i < tie.uses.size(); ++i) total.add_(tie.uses[i]->gradients.front().own());
    if (tie.holders) tie.holders->all_reduce(total, {.what = "join the uses of a tied parameter"})->wait();
  }
}

// Starts the copies in range order.
void StageParameters::bring_gradients() {
  visit_buffers([](Buffer&, const std::vector<Parameter*>&, std::vector<FlatGradients>& gradients) {
    for (auto& segment : gradients) segment.start_bringing();
  });
}

std::vector<TrainedRange> StageParameters::trained_ranges() {
  std::vector<TrainedRange> ranges;
  visit_buffers([&](Buffer& buffer, const std::vector<Parameter*>&, std::vector<FlatGradients>& gradients) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].own().numel() == 0) continue;
      TrainedRange& range = ranges.emplace_back(TrainedRange{buffer.values[i].own(), gradients[i].for_update(),
                                                             buffer.layout.segments[i].decays, pieces_of(buffer, i)});
      if (range.rounded = buffer.values[i].rounded(); range.rounded.defined())
        range.rounded_is_written = [&segment = buffer.values[i]] { segment.rounded_is_written(); };
      if (!host_) continue;
      range.await_gradients = [&segment = gradients[i]] { segment.wait_until_brought(); };
      range.values_changed = [&segment = buffer.values[i]] { segment.publish_ahead(); };
    }
  });
  return ranges;
}

std::vector<KeptRange> StageParameters::kept_values() {
  std::vector<KeptRange> ranges;
  visit_buffers([&](Buffer& buffer, const std::vector<Parameter*>&, std::vector<FlatGradients>&) {
    for (size_t i = 0; i < buffer.values.size(); ++i) ranges.push_back({buffer.values[i].own(), pieces_of(buffer, i)});
  });
  return ranges;
}

std::vector<TrainedParameter> StageParameters::trained_parameters() const {
  std::vector<TrainedParameter> parameters;
  const auto add = [&](const Buffer& buffer) {
    for (const auto& place : buffer.layout.places)
      if (place.param.spec->trainable) parameters.push_back({number_of(place.param.full_name), place.param.spec});
  };
  for (const auto& tie : ties_)
    if (tie.buffer) add(*tie.buffer);
  for (const auto& layer : layers_)
    if (layer) add(layer->buffer);
  return parameters;
}

int StageParameters::number_of(const std::string& name) const {
  return std::find(numbers_.begin(), numbers_.end(), name) - numbers_.begin();
}

// The pieces of this rank's shard, one per parameter.
std::vector<TrainedPiece> StageParameters::pieces_of(const Buffer& buffer, size_t segment) const {
  const Segment& kind = buffer.layout.segments[segment];
  const Range shard = shard_groups_.shard(kind);
  const bool counted = shard_groups_.enters_sums(kind);
  std::vector<TrainedPiece> pieces;
  for (const auto& place : buffer.layout.places) {
    const int64_t from = std::max(shard.begin, place.begin);
    const int64_t to = std::min(shard.end(), place.begin + place.length);
    if (place.segment != segment || from >= to) continue;
    pieces.push_back({.spec = place.param.spec,
                      .number = number_of(place.param.full_name),
                      .begin = from - shard.begin,
                      .offset = from - place.begin,
                      .length = to - from,
                      .counted = counted});
  }
  return pieces;
}

std::vector<at::Tensor> StageParameters::counted_gradients() const {
  std::vector<at::Tensor> parts;
  const auto add = [&](const std::vector<FlatGradients>& gradients) {
    for (const auto& segment : gradients) {
      const Range part = shard_groups_.counted_part(segment.segment());
      if (part.length > 0) parts.push_back(segment.own().narrow(0, part.begin, part.length));
    }
  };
  for (const auto& tie : ties_)
    if (!tie.uses.empty() && tie.stages.front() == groups_.coordinates.p) add(tie.uses.front()->gradients);
  for (const auto& layer : layers_)
    if (layer) add(layer->buffer.gradients);
  return parts;
}

}  // namespace shardline
