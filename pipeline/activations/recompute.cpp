#include "pipeline/activations/recompute.h"

#include <charconv>

#include "core/error.h"

namespace shardline {

std::string to_string(const Recompute& recompute) {
  switch (recompute.what) {
    case Recompute::What::nothing:
      return "none";
    case Recompute::What::attention:
      return "selective";
    case Recompute::What::layers:
      break;
  }
  if (recompute.group == 1) return "each";
  return recompute.group == Recompute::kAll ? "contiguous" : cat("group_", recompute.group);
}

std::optional<Recompute> recompute_strategy(const std::string& name) {
  if (name == "none") return Recompute{};
  if (name == "selective") return Recompute{Recompute::What::attention};
  if (name == "each") return Recompute{Recompute::What::layers, 1};
  if (name == "contiguous") return Recompute{Recompute::What::layers, Recompute::kAll};
  constexpr size_t prefix = 6;
  if (!name.starts_with("group_") || name.size() == prefix || name[prefix] == '0') return {};
  int size = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix, end, size);
  if (error != std::errc() || stop != end || size < 1) return {};
  return Recompute{Recompute::What::layers, size};
}

std::vector<LayerGroup> layer_groups(const std::vector<int>& layers_of_chunk, const std::vector<Recompute>& by_layer,
                                     int first_with_backward) {
  std::vector<LayerGroup> groups;
  const auto strategy = [&](size_t i) { return by_layer.empty() ? Recompute{} : by_layer.at(layers_of_chunk[i]); };
  for (size_t i = 0; i < layers_of_chunk.size(); ++i) {
    if (layers_of_chunk[i] < first_with_backward) {
      groups.push_back({.first = i, .has_backward = false});
      continue;
    }
    const Recompute recompute = strategy(i);
    const bool recomputed = recompute.what == Recompute::What::layers;
    const bool joins = !groups.empty() && groups.back().has_backward && recomputed && strategy(i - 1) == recompute &&
                       std::cmp_less(groups.back().count, recompute.group);
    if (joins)
      ++groups.back().count;
    else
      groups.push_back({i, 1, recomputed});
  }
  return groups;
}

}  // namespace shardline
