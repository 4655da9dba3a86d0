#include "optim/flat/flat_layout.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>

namespace shardline {
namespace {

int64_t padded(int64_t elements, int64_t unit) {
  return (elements + unit - 1) / unit * unit;
}

bool is_sharded(const ParamSpec& spec, const Sharding& sharding) {
  switch (sharding.level) {
    case Sharding::Level::none:
      return false;
    case Sharding::Level::optimizer:
    case Sharding::Level::gradients:
      return spec.trainable;
    case Sharding::Level::weights:
      return spec.numel() >= sharding.whole_below;
  }
  return false;
}

Segment segment_of(const ParamSpec& spec, int t_degree, const Sharding& sharding) {
  Segment segment{sharing_of(spec, t_degree), spec.decays, spec.trainable, spec.deferred};
  if (is_sharded(spec, sharding))
    segment.shards = sharding.degree * (segment.sharing == Sharing::partial ? t_degree : 1);
  return segment;
}

auto key_of(const Segment& segment) {
  return std::tuple(!segment.trainable, segment.shards == 1, segment.sharing, segment.decays, segment.deferred);
}

}  // namespace

Sharing sharing_of(const ParamSpec& spec, int t_degree) {
  if (spec.split_dim >= 0 && t_degree > 1) return Sharing::split;
  return spec.partial_over_t && t_degree > 1 ? Sharing::partial : Sharing::complete;
}

FlatLayout flat_layout(const std::vector<NamedParam>& params, int t, int t_degree, const Sharding& sharding) {
  FlatLayout layout;
  for (const auto& param : params) {
    const Segment segment = segment_of(*param.spec, t_degree, sharding);
    const auto known = [&](const Segment& other) { return key_of(other) == key_of(segment); };
    if (std::none_of(layout.segments.begin(), layout.segments.end(), known)) layout.segments.push_back(segment);
  }
  std::sort(layout.segments.begin(), layout.segments.end(),
            [](const Segment& a, const Segment& b) { return key_of(a) < key_of(b); });

  for (const auto& param : params) {
    const auto key = key_of(segment_of(*param.spec, t_degree, sharding));
    size_t segment = 0;
    while (key_of(layout.segments[segment]) != key) ++segment;
    const auto shape = param.spec->local_shape(t, t_degree);
    const int64_t length = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    layout.places.push_back({param, segment, layout.segments[segment].length, length, shape});
    layout.segments[segment].length += padded(length, FlatLayout::kAlignment);
  }
  for (auto& segment : layout.segments)
    segment.length = padded(segment.length, segment.shards * FlatLayout::kAlignment);
  return layout;
}

}  // namespace shardline
