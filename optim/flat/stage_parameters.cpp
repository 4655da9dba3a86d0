#include "optim/flat/stage_parameters.h"

#include <ATen/OpMathType.h>

#include <algorithm>

#include "core/comm/hierarchical_gather.h"
#include "core/error.h"

namespace shardline {
namespace {

// By segment: its whole flat tensor.
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
      layers_(setup.spec.layers.size()) {
  for (const auto& layer : spec_.layers)
    for (const auto& param : layer.params)
      if (param.tied_to.empty()) numbers_.push_back(layer.full_name(param));
  make_groups();
  find_ties(setup.stage_of_layer);
  for (size_t layer = 0; layer < spec_.layers.size(); ++layer)
    if (setup.stage_of_layer[layer] == groups_.at.p) build_layer(static_cast<int>(layer));
}

void StageParameters::make_groups() {
  if (sharding_.stage == Sharding::Stage::none) return;
  if (groups_.mesh.copies(sharding_.degree) == 1) {
    shards_ = groups_.rdp;
    shards_of_partial_ = groups_.dp;
  } else {
    const SharePlace place = groups_.mesh.shared(groups_.at.d, sharding_.degree);
    shards_ = groups_.rdp->split(place.copy, "shards");
    shards_of_partial_ = groups_.dp->split(place.copy, "shards and tp");
    shard_replicas_ = groups_.rdp->split(place.part, "replicas of a shard");
  }
  if (!sharding_.hierarchical_gather || groups_.host_of.empty()) return;
  const int host = groups_.host_of[groups_.rank];
  shards_ = with_hierarchical_gather(shards_, host);
  shards_of_partial_ = with_hierarchical_gather(shards_of_partial_, host);
}

CommunicatorPtr StageParameters::shards_of(const Segment& segment) const {
  if (segment.shards == 1) return nullptr;
  return segment.sharing == Sharing::partial ? shards_of_partial_ : shards_;
}

CommunicatorPtr StageParameters::replicas_of(const Segment& segment) const {
  if (segment.shards > 1) return shard_replicas_;
  const auto& all = segment.sharing == Sharing::partial ? groups_.dp : groups_.rdp;
  return all->size() > 1 ? all : nullptr;
}

StageParameters::Buffer StageParameters::make_buffer(const std::vector<NamedParam>& params) const {
  Buffer buffer{flat_layout(params, groups_.at.t, groups_.mesh.t(), sharding_), {}, {}};
  for (const auto& segment : buffer.layout.segments)
    buffer.values.emplace_back(segment, sharding_.stage, shards_of(segment), options_, trains_ && segment.trainable,
                               host_);
  return buffer;
}

std::vector<FlatGradients> StageParameters::make_gradients(const FlatLayout& layout, const HostLinkPtr& host) const {
  std::vector<FlatGradients> gradients;
  for (const auto& segment : layout.segments)
    if (trains_ && segment.trainable)
      gradients.emplace_back(segment, sharding_.stage, shards_of(segment), replicas_of(segment), options_, host);
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
        if (stage_of_layer[l] != groups_.at.p) continue;
        if (!tie.buffer) tie.buffer = make_buffer({{tie.name, &source}});
        auto use = std::make_unique<Use>();
        use->layer = static_cast<int>(l);
        use->gradients = make_gradients(tie.buffer->layout, tie.uses.empty() ? host_ : nullptr);  // of the sum
        use->parameter = views(*tie.buffer, use->gradients).front();
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
  const LayerSpec& spec = spec_.layers[layer];
  auto params = std::make_unique<LayerParams>();
  params->reduction = "gradients of " + spec.name;
  std::vector<NamedParam> own;
  const auto tied_use = [&](const ParamSpec& param) -> Parameter* {
    const std::string name = param.tied_to.empty() ? spec.full_name(param) : param.tied_to;
    for (auto& tie : ties_)
      for (auto& use : tie.uses)
        if (tie.name == name && use->layer == layer) {
          params->buffers.push_back(&*tie.buffer);
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
  params->buffers.push_back(&params->buffer);
  params->own = views(params->buffer, params->buffer.gradients);
  size_t next = 0;
  for (auto& parameter : params->in_spec_order)
    if (!parameter) parameter = &params->own[next++];
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
  if (groups_.at.d != 0) return false;
  if (sharing_of(*parameter.spec, groups_.mesh.t()) != Sharing::split && groups_.at.t != 0) return false;
  for (const auto& tie : ties_)
    if (tie.name == parameter.name) return tie.stages.front() == groups_.at.p;
  return true;
}

// ---- all that is stored

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

StoredElements StageParameters::elements() const {
  StoredElements stored;
  const auto add_gradients = [&](const std::vector<FlatGradients>& gradients) {
    for (const auto& segment : gradients)
      stored.gradients += segment.reduces_microbatches() ? segment.own().numel() : segment.whole().numel();
  };
  const auto add = [&](const Buffer& buffer) {
    for (const auto& values : buffer.values)
      stored.values += values.is_gathered() ? values.own().numel() : values.whole().numel();
  };
  const auto add_trained = [&](const std::vector<FlatGradients>& gradients) {
    for (const auto& segment : gradients) stored.trained += segment.own().numel();
  };
  for (const auto& tie : ties_) {
    if (tie.buffer) add(*tie.buffer);
    for (const auto& use : tie.uses) add_gradients(use->gradients);
    if (!tie.uses.empty()) add_trained(tie.uses.front()->gradients);
  }
  for (const auto& layer : layers_)
    if (layer) add(layer->buffer), add_gradients(layer->buffer.gradients), add_trained(layer->buffer.gradients);
  return stored;
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

void StageParameters::visit_gradients(const std::function<void(const Parameter&, const at::Tensor&)>& see) {
  visit_buffers([&](Buffer& buffer, const std::vector<Parameter*>& parameters, std::vector<FlatGradients>& gradients) {
    std::vector<at::Tensor> whole;
    for (const auto& segment : gradients) whole.push_back(segment.gather());
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto& place = buffer.layout.places[i];
      if (place.segment < whole.size()) see(*parameters[i], view_in(whole, place));
    }
  });
}

// ---- values for passes

void StageParameters::begin_run(std::vector<int> acquired) {
  acquired_ = std::move(acquired);
  next_ = 0;
  if (sharding_.stage == Sharding::Stage::weights && !acquired_.empty()) bring(acquired_.front());
}

void StageParameters::bring(int layer) {
  for (auto* buffer : layers_[layer]->buffers)
    for (auto& values : buffer->values) values.start_gathering();
}

// While a layer is used, the next one is on its way.
void StageParameters::acquire(int layer) {
  SL_ASSERT(next_ < acquired_.size() && acquired_[next_] == layer, "layer ", layer, " is acquired out of turn");
  ++next_;
  bring(layer);
  for (auto* buffer : layers_[layer]->buffers)
    for (auto& values : buffer->values) values.wait_until_whole();
  if (sharding_.stage != Sharding::Stage::weights || next_ == acquired_.size()) return;
  const auto gathered = [&](int of) {
    int64_t elements = 0;
    for (const auto* buffer : layers_[of]->buffers)
      for (const auto& values : buffer->values)
        if (values.is_gathered()) elements += values.whole().numel();
    return elements;
  };
  const int next = acquired_[next_];
  if (sharding_.most_gathered == 0 || gathered(layer) + gathered(next) <= sharding_.most_gathered) bring(next);
}

// What the next layer needs too stays.
void StageParameters::release(int layer) {
  if (sharding_.stage != Sharding::Stage::weights) return;
  const std::vector<Buffer*> none;
  const auto& next = next_ < acquired_.size() ? layers_[acquired_[next_]]->buffers : none;
  for (auto* buffer : layers_[layer]->buffers)
    if (std::find(next.begin(), next.end(), buffer) == next.end())
      for (auto& values : buffer->values) values.drop();
}

void StageParameters::publish_values() {
  visit_buffers([&](Buffer& buffer, const std::vector<Parameter*>&, std::vector<FlatGradients>&) {
    for (auto& values : buffer.values) values.publish();
  });
}

// ---- gradients

std::vector<FlatGradients*> StageParameters::gradients_of(int layer, bool deferred) {
  std::vector<FlatGradients*> found;
  const auto add = [&](std::vector<FlatGradients>& gradients) {
    for (auto& segment : gradients)
      if (segment.segment().deferred == deferred && segment.segment().length > 0) found.push_back(&segment);
  };
  add(layers_[layer]->buffer.gradients);
  for (auto& tie : ties_)
    for (auto& use : tie.uses)
      if (use->layer == layer) add(use->gradients);
  return found;
}

void StageParameters::zero_gradients() {
  visit_buffers([&](Buffer&, const std::vector<Parameter*>&, std::vector<FlatGradients>& gradients) {
    for (auto& segment : gradients) segment.zero();
  });
  for (auto& tie : ties_)
    for (size_t use = 1; use < tie.uses.size(); ++use)
      for (auto& segment : tie.uses[use]->gradients) segment.zero();
}

// Whole gradients of one layer at most are being reduced while another one's are made.
void StageParameters::open_gradients(int layer, bool deferred) {
  const auto in_the_way = [&](const Reduction& reduction) {
    if (!reduction.of_microbatch) return false;
    const bool large = sharding_.reduces_alone(reduction.gradients->whole().numel());
    return large || reduction.layer == layer || reduction.layer != last_closed_;
  };
  while (std::any_of(under_way_.begin(), under_way_.end(), in_the_way)) complete_oldest();
  for (auto* gradients : gradients_of(layer, deferred)) gradients->open();
}

void StageParameters::close_gradients(int layer, bool deferred, bool last) {
  last_closed_ = layer;
  const char* what = layers_[layer]->reduction.c_str();
  for (auto* gradients : gradients_of(layer, deferred)) {
    if (gradients->reduces_microbatches())
      under_way_.push_back({layer, gradients, gradients->reduce_microbatch(what), true, last});
    else if (last)
      start_step_reduction(layer, *gradients);
  }
}

void StageParameters::start_step_reduction(int layer, FlatGradients& gradients) {
  if (auto work = gradients.reduce_step(layers_[layer]->reduction.c_str()))
    under_way_.push_back({layer, &gradients, std::move(work), false, true});
}

void StageParameters::complete_oldest() {
  const Reduction reduction = std::move(under_way_.front());
  under_way_.pop_front();
  reduction.work->wait();
  if (!reduction.of_microbatch) return;
  reduction.gradients->take_reduced();
  if (reduction.last) start_step_reduction(reduction.layer, *reduction.gradients);
}

void StageParameters::settle_gradients() {
  const auto of_microbatch = [](const Reduction& reduction) { return reduction.of_microbatch; };
  while (std::any_of(under_way_.begin(), under_way_.end(), of_microbatch)) complete_oldest();
}

void StageParameters::finish_gradients() {
  while (!under_way_.empty()) complete_oldest();
  for (auto& tie : ties_) {
    if (tie.uses.empty() || tie.uses.front()->gradients.empty()) continue;
    const auto& total = tie.uses.front()->gradients.front().own();
    for (size_t i = 1; i < tie.uses.size(); ++i) total.add_(tie.uses[i]->gradients.front().own());
    if (tie.holders) tie.holders->all_reduce(total, {.what = "join the uses of a tied parameter"})->wait();
  }
}

// In the order of the ranges.
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
      if (!host_) continue;
      range.await_gradients = [&segment = gradients[i]] { segment.wait_until_brought(); };
      range.values_changed = [&segment = buffer.values[i]] { segment.publish_ahead(); };
    }
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
  return static_cast<int>(std::find(numbers_.begin(), numbers_.end(), name) - numbers_.begin());
}

// What of this rank's shard belongs to which parameter.
std::vector<TrainedPiece> StageParameters::pieces_of(const Buffer& buffer, size_t segment) const {
  const Segment& kind = buffer.layout.segments[segment];
  const bool first_of_t = is_dealt_over_t(kind) || groups_.at.t == 0;
  const bool first_of_shards = kind.shards > 1 || groups_.mesh.shared(groups_.at.d, sharding_.degree).part == 0;
  const int64_t begin = kind.shards > 1 ? shards_of(kind)->rank() * kind.shard_length() : 0;
  std::vector<TrainedPiece> pieces;
  for (const auto& place : buffer.layout.places) {
    const int64_t from = std::max(begin, place.begin);
    const int64_t to = std::min(begin + kind.shard_length(), place.begin + place.length);
    if (place.segment != segment || from >= to) continue;
    pieces.push_back({.spec = place.param.spec,
                      .number = number_of(place.param.full_name),
                      .begin = from - begin,
                      .offset = from - place.begin,
                      .length = to - from,
                      .counted = first_of_t && first_of_shards});
  }
  return pieces;
}

bool StageParameters::is_dealt_over_t(const Segment& segment) const {
  return segment.sharing == Sharing::split || (segment.sharing == Sharing::partial && segment.shards > 1);
}

// Of a shard that several ranks hold, each counts a part: the same bits for any number of them, see gradient_norm.h.
Range StageParameters::counted_part(const Segment& segment) const {
  if (!is_dealt_over_t(segment) && groups_.at.t != 0) return {};
  const int degree = segment.shards > 1 ? sharding_.degree : 1;
  const Mesh& mesh = groups_.mesh;
  const Range units = split_range(segment.shard_length() / FlatLayout::kAlignment, mesh.copies(degree),
                                  mesh.shared(groups_.at.d, degree).copy);
  return {units.begin * FlatLayout::kAlignment, units.length * FlatLayout::kAlignment};
}

std::vector<at::Tensor> StageParameters::counted_gradients() const {
  std::vector<at::Tensor> parts;
  const auto add = [&](const std::vector<FlatGradients>& gradients) {
    for (const auto& segment : gradients) {
      const Range part = counted_part(segment.segment());
      if (part.length > 0) parts.push_back(segment.own().narrow(0, part.begin, part.length));
    }
  };
  for (const auto& tie : ties_)
    if (!tie.uses.empty() && tie.stages.front() == groups_.at.p) add(tie.uses.front()->gradients);
  for (const auto& layer : layers_)
    if (layer) add(layer->buffer.gradients);
  return parts;
}

}  // namespace shardline
