#include "partitioner/memory/parameter_memory.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "optim/flat/reduction_overlap.h"
#include "pipeline/activations/acquired_layers.h"
#include "pipeline/schedule/schedule_simulation.h"

namespace shardline {
namespace {

using Level = Sharding::Level;

// The flat layouts of a stage: one of each layer's own parameters and one of each tied parameter.
class StageLayouts {
 public:
  StageLayouts(const PlacedLayers& placed, Coordinates at) : placed_(placed), at_(at) {
    const ModelSpec& spec = placed.workload.spec;
    std::set<std::string> tied;
    for (const auto& layer : spec.layers)
      for (const auto& param : layer.params)
        if (!param.tied_to.empty()) tied.insert(param.tied_to);
    for (size_t l = 0; l < spec.layers.size(); ++l) {
      if (placed.stage_of_layer[l] != at.p) continue;
      const LayerSpec& layer = spec.layers[l];
      std::vector<NamedParam> own;
      for (const auto& param : layer.params) {
        const std::string name = param.tied_to.empty() ? layer.full_name(param) : param.tied_to;
        if (tied.contains(name))
          use(l, name, {{name, &spec.param(name)}});
        else
          own.push_back({name, &param});
      }
      use(l, layer.name, own);
    }
  }

  const std::map<std::string, FlatLayout>& all() const { return layouts_; }
  const std::vector<std::string>& of_layer(int layer) const { return of_layer_.at(layer); }
  const FlatLayout& at(const std::string& name) const { return layouts_.at(name); }
  const std::vector<std::string>& uses() const { return uses_; }  // each use has its own gradients

 private:
  void use(int layer, const std::string& name, const std::vector<NamedParam>& params) {
    if (!layouts_.contains(name))
      layouts_[name] = flat_layout(params, at_.t, placed_.mesh.t(), placed_.layout.sharding);
    of_layer_[layer].push_back(name);
    uses_.push_back(name);
  }

  const PlacedLayers& placed_;
  Coordinates at_;
  std::map<std::string, FlatLayout> layouts_;
  std::map<int, std::vector<std::string>> of_layer_;
  std::vector<std::string> uses_;
};

bool is_gathered(const Segment& segment, const Sharding& sharding) {
  return sharding.level == Level::weights && segment.shards > 1;
}
bool is_reduced(const Segment& segment, const Sharding& sharding) {
  return sharding.level >= Level::gradients && segment.shards > 1 && segment.trainable;
}

// The elements of a parameter in this rank's shard of its segment.
int64_t part_of(const FlatLayout::Place& place, const Segment& segment, Coordinates at, const PlacedLayers& placed) {
  if (segment.shards == 1) return place.length;
  const int degree = placed.layout.sharding.degree;
  const int shard =
      segment.sharing == Sharing::partial ? placed.mesh.part_over_t(at, degree) : placed.mesh.shared(at.d, degree).part;
  const int64_t begin = shard * segment.shard_length(), end = begin + segment.shard_length();
  return std::max<int64_t>(0, std::min(end, place.begin + place.length) - std::max(begin, place.begin));
}

// The most elements that are gathered at a time: a layer's values while it is used, together with the next layer's.
int64_t most_gathered(const StageLayouts& layouts, const std::vector<int>& acquired, const Sharding& sharding) {
  const auto elements = [&](const std::set<std::string>& names) {
    int64_t sum = 0;
    for (const auto& name : names)
      for (const auto& segment : layouts.at(name).segments)
        if (is_gathered(segment, sharding)) sum += segment.length;
    return sum;
  };
  int64_t most = 0;
  for (size_t i = 0; i < acquired.size(); ++i) {
    const auto& now = layouts.of_layer(acquired[i]);
    std::set<std::string> names(now.begin(), now.end());
    if (i + 1 < acquired.size()) {
      const auto& next = layouts.of_layer(acquired[i + 1]);
      const std::set<std::string> after(next.begin(), next.end());
      if (sharding.most_gathered == 0 || elements(names) + elements(after) <= sharding.most_gathered)
        names.insert(after.begin(), after.end());
    }
    most = std::max(most, elements(names));
  }
  return most;
}

// The elements of the gradients that are open or being reduced, as GradientReductions opens and closes them.
class OpenGradients {
 public:
  OpenGradients(const StageLayouts& layouts, const Sharding& sharding) : layouts_(layouts), sharding_(sharding) {}

  void open(int layer, bool deferred) {
    while (std::any_of(under_way_.begin(), under_way_.end(), [&](const Reduction& r) {
      return must_end_before(sharding_, r.whole, r.layer, layer, closed_);
    }))
      complete_oldest();
    for (const auto* segment : of(layer, deferred))
      if (open_.insert({layer, segment}).second) add(segment->length);
  }
  void close(int layer, bool deferred) {
    closed_ = layer;
    for (const auto* segment : of(layer, deferred)) {
      open_.erase({layer, segment});
      const int64_t part = taken_.contains({layer, segment}) ? segment->shard_length() : 0;
      add(part);
      under_way_.push_back({layer, segment, segment->length, part});
    }
  }
  void settle() {
    while (!under_way_.empty()) complete_oldest();
  }
  int64_t most() const { return most_; }

 private:
  struct Reduction {
    int layer;
    const Segment* segment;
    int64_t whole, part;
  };

  std::vector<const Segment*> of(int layer, bool deferred) const {
    std::vector<const Segment*> segments;
    for (const auto& name : layouts_.of_layer(layer))
      for (const auto& segment : layouts_.at(name).segments)
        if (is_reduced(segment, sharding_) && segment.deferred == deferred) segments.push_back(&segment);
    return segments;
  }
  void add(int64_t elements) {
    now_ += elements;
    most_ = std::max(most_, now_);
  }
  void complete_oldest() {
    const Reduction& oldest = under_way_.front();
    taken_.insert({oldest.layer, oldest.segment});
    now_ -= oldest.whole + oldest.part;
    under_way_.pop_front();
  }

  const StageLayouts& layouts_;
  const Sharding& sharding_;
  std::deque<Reduction> under_way_;
  std::set<std::pair<int, const Segment*>> taken_, open_;
  int closed_ = -1;
  int64_t now_ = 0, most_ = 0;
};

int64_t most_open(const StageLayouts& layouts, const std::vector<Instruction>& list,
                  const std::vector<std::vector<int>>& layers_of_chunk, const Sharding& sharding) {
  OpenGradients gradients(layouts, sharding);
  for (size_t i = 0; i < list.size(); ++i) {
    const auto& layers = layers_of_chunk[list[i].chunk];
    const bool whole_backward = list[i].op == Op::backward_input && weights_follow(list, i);
    const bool weights_alone = list[i].op == Op::backward_weight && (i == 0 || !weights_follow(list, i - 1));
    if (list[i].op == Op::forward && &layers == &layers_of_chunk.back())
      gradients.open(layers.back(), false);  // the loss
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
      if (list[i].op == Op::backward_input) gradients.open(*layer, false);
      if (whole_backward || weights_alone) gradients.open(*layer, true);
      if (list[i].op == Op::backward_input) gradients.close(*layer, false);
      if (whole_backward || weights_alone) gradients.close(*layer, true);
    }
    if (list[i].op == Op::settle_gradients) gradients.settle();
  }
  return gradients.most();
}

}  // namespace

ParameterElements parameter_elements(const PlacedLayers& placed, Coordinates at) {
  const StageLayouts layouts(placed, at);
  ParameterElements elements;
  for (const auto& [name, layout] : layouts.all())
    for (const auto& segment : layout.segments) {
      elements.values += is_gathered(segment, placed.layout.sharding) ? segment.shard_length() : segment.length;
      if (segment.trainable) elements.trained += segment.shard_length();
    }
  for (const auto& [name, layout] : layouts.all())
    for (const auto& place : layout.places)
      if (place.param.spec->trainable)
        elements.trained_parts.emplace_back(place.param.spec,
                                            part_of(place, layout.segments[place.segment], at, placed));
  for (const auto& name : layouts.uses())
    for (const auto& segment : layouts.at(name).segments)
      if (segment.trainable)
        elements.gradients += is_reduced(segment, placed.layout.sharding) ? segment.shard_length() : segment.length;
  if (placed.layout.sharding.level < Level::gradients) return elements;

  const auto& list = placed.train.instructions[at.p];
  const auto& layers = placed.layers_of_chunk;
  std::vector<std::vector<LayerGroup>> groups;
  for (const auto& chunk : layers) groups.push_back(layer_groups(chunk, placed.layout.recompute));
  elements.most_gathered = most_gathered(layouts, acquired_layers(list, layers, groups), placed.layout.sharding);
  elements.most_open = most_open(layouts, list, layers, placed.layout.sharding);
  return elements;
}

std::vector<Segment> gradient_segments(const PlacedLayers& placed, Coordinates at) {
  const StageLayouts layouts(placed, at);
  std::vector<Segment> segments;
  for (const auto& name : layouts.uses())
    for (const auto& segment : layouts.at(name).segments)
      if (segment.trainable && segment.length > 0) segments.push_back(segment);
  return segments;
}

}  // namespace shardline
