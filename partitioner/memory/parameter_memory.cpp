#include "partitioner/memory/parameter_memory.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "optim/flat/reduction_overlap.h"
#include "pipeline/activations/acquired_layers.h"
#include "pipeline/schedule/schedule_simulation.h"

namespace shardline {
namespace {

using Level = Sharding::Level;

// Whether the layers' own parameters have equal flat layouts.
bool laid_out_alike(const LayerSpec& a, const LayerSpec& b) {
  const auto key = [](const ParamSpec& param) {
    return std::tie(param.shape, param.split_dim, param.trainable, param.decays, param.partial_over_t, param.deferred);
  };
  return std::ranges::equal(a.params, b.params,
                            [&](const ParamSpec& one, const ParamSpec& other) { return key(one) == key(other); });
}

// The flat layouts of a stage: one for each layer's own parameters and one for each tied parameter, by number.
class StageLayouts {
 public:
  StageLayouts(const PlacedLayers& placed, Coordinates at) : placed_(placed), at_(at) {
    const auto& layers = placed.workload.spec.layers;
    std::map<std::string, std::optional<size_t>> tied;  // by full name: the layout's number, if the stage has one
    for (const auto& layer : layers)
      for (const auto& param : layer.params)
        if (!param.tied_to.empty()) tied[param.tied_to];
    of_layer_.resize(layers.size());
    const LayerSpec* before = nullptr;  // the previous layer, if the last layout covers all its parameters
    for (size_t l = 0; l < layers.size(); ++l) {
      const LayerSpec& layer = layers[l];
      const bool here = placed.stage_of_layer[l] == at.p, shares = shares_parameters(layer, tied);
      if (here && !shares)
        use(l, before && laid_out_alike(*before, layer) ? hold(layouts_.back()) : hold(own_parameters(layer, tied)));
      else if (here)
        use_shared(l, tied);
      before = here && !shares ? &layer : nullptr;
    }
  }

  const std::vector<const FlatLayout*>& all() const { return all_; }
  const FlatLayout& at(size_t number) const { return *all_[number]; }
  const std::vector<size_t>& of_layer(int layer) const { return of_layer_[layer]; }
  const std::vector<size_t>& uses() const { return uses_; }  // each use has its own gradients

 private:
  using Tied = std::map<std::string, std::optional<size_t>>;

  static bool shares_parameters(const LayerSpec& layer, const Tied& tied) {
    return std::ranges::any_of(layer.params, [](const ParamSpec& param) { return !param.tied_to.empty(); }) ||
           std::ranges::any_of(tied, [&](const auto& one) { return one.first.starts_with(layer.name + "."); });
  }

  static std::string shared_name(const LayerSpec& layer, const ParamSpec& param) {
    return param.tied_to.empty() ? layer.full_name(param) : param.tied_to;
  }

  FlatLayout laid_out(const std::vector<NamedParam>& params) const {
    return flat_layout(params, at_.t, placed_.layout.tensor, placed_.layout.sharding);
  }
  FlatLayout own_parameters(const LayerSpec& layer, const Tied& tied) const {
    std::vector<NamedParam> own;
    for (const auto& param : layer.params)
      if (tied.empty() || !tied.contains(shared_name(layer, param))) own.push_back({"", &param});
    return laid_out(own);
  }

  void use_shared(size_t l, Tied& tied) {
    const ModelSpec& spec = placed_.workload.spec;
    for (const auto& param : spec.layers[l].params) {
      const auto found = tied.find(shared_name(spec.layers[l], param));
      if (found == tied.end()) continue;
      if (!found->second) found->second = hold(laid_out({{"", &spec.param(found->first)}}));
      use(l, *found->second);
    }
    use(l, hold(own_parameters(spec.layers[l], tied)));
  }

  size_t hold(FlatLayout&& layout) { return hold(layouts_.emplace_back(std::move(layout))); }
  size_t hold(const FlatLayout& layout) {
    all_.push_back(&layout);
    return all_.size() - 1;
  }
  void use(size_t layer, size_t number) {
    of_layer_[layer].push_back(number);
    uses_.push_back(number);
  }

  const PlacedLayers& placed_;
  Coordinates at_;
  std::deque<FlatLayout> layouts_;  // adjacent equal layers share one
  std::vector<const FlatLayout*> all_;
  std::vector<std::vector<size_t>> of_layer_;
  std::vector<size_t> uses_;
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
  const Mesh mesh = placed.layout.mesh();
  const int degree = placed.layout.sharding.degree;
  const int shard = segment.sharing == Sharing::partial ? mesh.part_over_t(at, degree) : mesh.shared(at.d, degree).part;
  const int64_t begin = shard * segment.shard_length(), end = begin + segment.shard_length();
  return std::max<int64_t>(0, std::min(end, place.begin + place.length) - std::max(begin, place.begin));
}

// The maximum number of elements gathered at a time: the values of a layer in use plus those of the next layer.
int64_t most_gathered(const StageLayouts& layouts, const std::vector<int>& acquired, size_t layers,
                      const Sharding& sharding) {
  const auto elements = [&](const std::set<size_t>& numbers) {
    int64_t sum = 0;
    for (const size_t number : numbers)
      for (const auto& segment : layouts.at(number).segments)
        if (is_gathered(segment, sharding)) sum += segment.length;
    return sum;
  };
  const auto elements_with = [&](int layer, int next) {
    const auto& now = layouts.of_layer(layer);
    const auto& after = layouts.of_layer(next);
    std::set<size_t> numbers(now.begin(), now.end());
    if (sharding.most_gathered == 0 ||
        elements(numbers) + elements({after.begin(), after.end()}) <= sharding.most_gathered)
      numbers.insert(after.begin(), after.end());
    return elements(numbers);
  };
  int64_t most = 0;
  std::vector<bool> seen(layers * layers);  // pairs of layers
  for (size_t i = 0; i < acquired.size(); ++i) {
    const int layer = acquired[i], next = acquired[i + 1 < acquired.size() ? i + 1 : i];
    const size_t pair = layer * layers + next;
    if (!seen[pair]) most = std::max(most, elements_with(layer, next));
    seen[pair] = true;
  }
  return most;
}

// The elements of gradients that are open or being reduced, according to ReductionQueue.
class OpenGradients {
 public:
  OpenGradients(const StageLayouts& layouts, size_t layers, const Sharding& sharding) : sharding_(sharding) {
    for (auto& of_layer : of_layer_) of_layer.resize(layers);
    for (size_t layer = 0; layer < layers; ++layer)
      for (const size_t number : layouts.of_layer(static_cast<int>(layer)))
        for (const auto& segment : layouts.at(number).segments) {
          if (!is_reduced(segment, sharding_)) continue;
          of_layer_[segment.deferred][layer].push_back(parts_.size());
          parts_.push_back(
              {.layer = static_cast<int>(layer), .whole = segment.length, .shard = segment.shard_length()});
        }
  }

  void open(int layer, bool deferred) {
    while (std::ranges::any_of(under_way_, [&](const Reduction& reduction) {
      const Part& part = parts_[reduction.part];
      return must_end_before(sharding_, part.whole, part.layer, layer, closed_);
    }))
      complete_oldest();
    for (const size_t part : of_layer_[deferred][layer])
      if (!std::exchange(parts_[part].is_open, true)) add(parts_[part].whole);
  }
  void close(int layer, bool deferred) {
    closed_ = layer;
    for (const size_t number : of_layer_[deferred][layer]) {
      Part& part = parts_[number];
      part.is_open = false;
      const int64_t received = part.is_taken ? part.shard : 0;
      add(received);
      under_way_.push_back({number, part.whole + received});
    }
  }
  void settle() {
    while (!under_way_.empty()) complete_oldest();
  }
  int64_t most() const { return most_; }

 private:
  // The gradients of one use of a segment.
  struct Part {
    int layer;
    int64_t whole, shard;  // elements
    bool is_open = false, is_taken = false;
  };
  struct Reduction {
    size_t part;
    int64_t elements;
  };

  void add(int64_t elements) {
    now_ += elements;
    most_ = std::max(most_, now_);
  }
  void complete_oldest() {
    parts_[under_way_.front().part].is_taken = true;
    now_ -= under_way_.front().elements;
    under_way_.pop_front();
  }

  const Sharding& sharding_;
  std::vector<Part> parts_;
  std::vector<std::vector<size_t>> of_layer_[2];  // indexes: whether they are deferred, layer of the model
  std::deque<Reduction> under_way_;
  int closed_ = -1;
  int64_t now_ = 0, most_ = 0;
};

int64_t most_open(const StageLayouts& layouts, const std::vector<Instruction>& list, const PlacedLayers& placed) {
  const ModelSpec& spec = placed.workload.spec;
  const auto& layers_of_chunk = placed.layers_of_chunk;
  OpenGradients gradients(layouts, placed.stage_of_layer.size(), placed.layout.sharding);
  for (size_t i = 0; i < list.size(); ++i) {
    const auto& layers = layers_of_chunk[list[i].chunk];
    const bool whole_backward = weights_follow(list, i);
    const bool weights_alone = list[i].op == Op::backward_weight && (i == 0 || !weights_follow(list, i - 1));
    if (list[i].op == Op::forward && &layers == &layers_of_chunk.back())
      gradients.open(layers.back(), false);  // for the loss
    for (auto layer = layers.rbegin(); layer != layers.rend() && spec.layers[*layer].has_backward; ++layer) {
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
  for (const FlatLayout* layout : layouts.all())
    for (const auto& segment : layout->segments) {
      elements.values += is_gathered(segment, placed.layout.sharding) ? segment.shard_length() : segment.length;
      (segment.trainable ? elements.trained : elements.frozen) += segment.shard_length();
    }
  for (const FlatLayout* layout : layouts.all())
    for (const auto& place : layout->places)
      if (place.param.spec->trainable)
        elements.trained_parts.emplace_back(place.param.spec,
                                            part_of(place, layout->segments[place.segment], at, placed));
  for (const size_t number : layouts.uses())
    for (const auto& segment : layouts.at(number).segments)
      if (segment.trainable)
        elements.gradients += is_reduced(segment, placed.layout.sharding) ? segment.shard_length() : segment.length;
  if (placed.layout.sharding.level < Level::gradients) return elements;

  const auto& list = placed.train.instructions[at.p];
  const auto& layers = placed.layers_of_chunk;
  std::vector<std::vector<LayerGroup>> groups;
  const int first = placed.workload.spec.first_with_backward();
  for (const auto& chunk : layers) groups.push_back(layer_groups(chunk, placed.layout.recompute, first));
  elements.most_gathered = most_gathered(layouts, acquired_layers(list, layers, groups), placed.stage_of_layer.size(),
                                         placed.layout.sharding);
  elements.most_open = most_open(layouts, list, placed);
  return elements;
}

std::vector<Segment> value_segments(const PlacedLayers& placed, Coordinates at) {
  const StageLayouts layouts(placed, at);
  std::vector<Segment> segments;
  for (const size_t number : layouts.uses())
    for (const auto& segment : layouts.at(number).segments)
      if (segment.length > 0) segments.push_back(segment);
  return segments;
}

std::vector<Segment> gradient_segments(const PlacedLayers& placed, Coordinates at) {
  auto segments = value_segments(placed, at);
  std::erase_if(segments, [](const Segment& segment) { return !segment.trainable; });
  return segments;
}

}  // namespace shardline
