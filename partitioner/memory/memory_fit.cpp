#include "partitioner/memory/memory_fit.h"

#include <algorithm>
#include <ranges>

#include "core/error.h"
#include "core/number_text.h"

namespace shardline {

MemoryFit memory_fit(const Cluster& cluster, const std::vector<MemoryBytes>& stages) {
  MemoryFit fit{.fits = true, .limit = cluster.memory_bytes};
  for (size_t stage = 0; stage < stages.size(); ++stage)
    if (stages[stage].total() > fit.bytes) {
      fit.bytes = stages[stage].total();
      fit.stage = stage;
    }
  fit.fits = fit.bytes <= fit.limit;
  const auto& most = stages[fit.stage];
  fit.why = cat("stage ", fit.stage, " needs ", format_bytes(fit.bytes), " of ", format_bytes(fit.limit), ":");
  for (const auto& [name, bytes] : kPlannedClasses)
    fit.why += cat(fit.why.ends_with(':') ? " " : ", ", name, " ", format_bytes(most.*bytes));
  return fit;
}

namespace {

struct Change {
  Layout layout;
  std::string text;
};

// All further steps of one kind of change, smallest first.
std::vector<Change> smaller_microbatches(const Layout& from) {
  std::vector<Change> changes;
  if (from.schedule.is_file()) return changes;  // a file fixes its number of microbatches
  Layout layout = from;
  while (layout.microbatch_size % 2 == 0) {
    layout.microbatch_size /= 2;
    layout.microbatches *= 2;
    if (layout.microbatches_per_accumulation() > kMostMicrobatches || layout.microbatches > kMostMicrobatchesOfStep)
      break;
    changes.push_back({layout, cat("microbatches of ", layout.microbatch_size, " instead of ", from.microbatch_size)});
  }
  return changes;
}
std::vector<Change> more_recomputation(const Workload& workload, const Layout& from) {
  std::vector<Change> changes;
  for (const auto recomputed : {Recompute::What::attention, Recompute::What::layers}) {
    if (recomputed == Recompute::What::attention && workload.software.fused) continue;  // the fused op does this anyway
    Layout more = from;
    more.recompute = recompute_blocks(workload.spec, recomputed);
    const auto recomputes_less = [&](size_t layer) { return from.recomputed(layer) < more.recomputed(layer); };
    const auto layers = std::views::iota(size_t{0}, workload.spec.layers.size());
    if (std::ranges::any_of(layers, recomputes_less))
      changes.push_back({more, cat("recompute ", recompute_text(more))});
  }
  return changes;
}
std::vector<Change> more_sharding(const Layout& from) {
  std::vector<Change> changes;
  for (int stage = static_cast<int>(from.sharded()) + 1; stage <= 3 && from.replicas > 1; ++stage) {
    static constexpr const char* kWhat[] = {"", "optimizer states", "optimizer states and gradients",
                                            "optimizer states, gradients and weights"};
    changes.push_back({from, cat("shard ", kWhat[stage], " (ZeRO-", stage, ")")});
    Sharding& sharding = changes.back().layout.sharding;
    if (from.sharding.degree == 1) sharding.degree = from.replicas;
    sharding.level = static_cast<Sharding::Level>(stage);
  }
  return changes;
}
std::vector<Change> offloading(const Cluster& cluster, const Layout& from) {
  const bool keeps_inputs = std::ranges::any_of(
      from.recompute, [](const Recompute& recompute) { return recompute.what == Recompute::What::layers; });
  if (from.offload.enabled || !keeps_inputs || cluster.host.bytes_per_second == 0) return {};
  std::vector<Change> changes = {{from, "move inputs of recomputed blocks to the host"}};
  changes.back().layout.offload.enabled = true;
  return changes;
}

}  // namespace

std::optional<MemoryAdvice> advice_to_fit(const Workload& workload, const Cluster& cluster, const Layout& layout,
                                          const std::function<std::vector<int>(const Layout&)>& chunk_of_layer) {
  const auto fits = [&](const Layout& tried) {
    const auto schedule = training_schedule(tried);
    const auto chunks = chunk_of_layer(tried);
    return memory_fit(cluster, memory_by_stage({workload, tried, schedule, chunks})).fits;
  };
  const std::vector<std::function<std::vector<Change>(const Layout&)>> kinds = {
      smaller_microbatches, [&](const Layout& from) { return more_recomputation(workload, from); }, more_sharding,
      [&](const Layout& from) { return offloading(cluster, from); }};
  for (const auto& kind : kinds)
    for (const auto& change : kind(layout))
      if (fits(change.layout)) return MemoryAdvice{change.layout, change.text};
  // If no kind is enough by itself, combines them in this order, each at its maximum before the next one.
  MemoryAdvice together{layout, ""};
  for (const auto& kind : kinds) {
    const auto changes = kind(together.layout);
    for (const auto& change : changes)
      if (fits(change.layout))
        return MemoryAdvice{change.layout, together.text + (together.text.empty() ? "" : "; ") + change.text};
    if (changes.empty()) continue;
    together = {changes.back().layout, together.text + (together.text.empty() ? "" : "; ") + changes.back().text};
  }
  return std::nullopt;
}

}  // namespace shardline
