#include "partitioner/search/search.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "core/error.h"
#include "core/number_text.h"
#include "partitioner/memory/device_bytes.h"
#include "partitioner/search/block_bounds.h"

namespace shardline {
namespace {

// Fraction of the time to fill and drain equal chunks; unequal chunks may need a little less.
constexpr double kFillShare = 0.9;

const std::vector<bool> kWhole = {false};  // sequence parallelism requires tensor parallelism

// The requested numbers that divide `of`; all divisors if none are requested.
std::vector<int> choices(const std::vector<int>& asked, int of) {
  std::set<int> divisors;
  for (const int d : asked)
    if (of % d == 0) divisors.insert(d);
  for (int d = 1; asked.empty() && d <= of / d; ++d)
    if (of % d == 0) divisors.insert({d, of / d});
  return {divisors.begin(), divisors.end()};
}

bool asked_for(const std::vector<int>& asked, int value) {
  return asked.empty() || std::find(asked.begin(), asked.end(), value) != asked.end();
}

// Enumerates the possible layouts of the space.
class Enumeration {
 public:
  Enumeration(const Workload& workload, const Machines& machines, const SearchSpace& space)
      : workload_(workload), machines_(machines), space_(space), recomputes_(space.recompute) {
    using What = Recompute::What;
    if (!recomputes_.empty()) return;
    for (const What what : {What::nothing, What::attention, What::layers})
      if (what != What::attention || !workload.software.fused)  // the fused op recomputes it anyway
        recomputes_.push_back(recompute_blocks(workload.spec, what));
  }

  // Includes layouts that are never best only if there are no others. Throws ConfigError if there are none at all.
  std::vector<Layout> all() {
    for (const bool with_poor : {false, true}) {
      with_poor_ = with_poor;
      excluded_.clear();
      auto worlds = space_.worlds;
      if (worlds.empty()) worlds = {machines_.cluster.devices()};
      for (const int world : worlds) ranks(world);
      if (!layouts_.empty()) return std::move(layouts_);
    }
    std::string rules;
    for (const auto& rule : excluded_) rules += cat(rules.empty() ? "" : "; ", rule);
    throw ConfigError(cat("no layout of the search space exists: ", rules));
  }

 private:
  // Whether the layout is excluded by a rule that the user should know about.
  bool excludes(bool excluded, const std::string& rule) {
    if (excluded) excluded_.insert(rule);
    return excluded;
  }

  void ranks(int world) {
    const auto tensors = choices(space_.tensor, world);
    excludes(tensors.empty(), cat("tensor_parallel_degree must divide the ", world, " ranks"));
    for (const int tensor : tensors) {
      const auto pipelines = choices(space_.pipeline, world / tensor);
      excludes(pipelines.empty(), cat("pipeline_parallel_degree must divide the ", world / tensor,
                                      " ranks that tensor_parallel_degree ", tensor, " leaves of ", world));
      for (const int pipeline : pipelines) degrees(tensor, pipeline, world);
    }
  }

  void degrees(int tensor, int pipeline, int world) {
    // A T group that spans nodes gains nothing: all its communication waits for the slow link.
    if (!with_poor_ && space_.tensor.empty() && machines_.cluster.devices_per_node % tensor != 0) return;
    Layout layout = space_.base;
    layout.tensor = tensor;
    layout.pipeline = pipeline;
    layout.replicas = world / tensor / pipeline;
    const int64_t batch = workload_.global_batch, share = batch / layout.replicas;
    const int r = layout.replicas;
    if (excludes(!asked_for(space_.replicas, r), cat("the search does not include ", r, " replicas"))) return;
    if (excludes(batch % r != 0, cat("the global batch ", batch, " must be a multiple of the ", r, " replicas")))
      return;
    bool cut = false;
    for (const int size : choices(space_.microbatch_sizes, share)) {
      layout.microbatch_size = size;
      layout.microbatches = share / size;
      if (!asked_for(space_.microbatches, layout.microbatches)) continue;
      cut = true;
      if (excludes(share / size > kMostMicrobatches, cat("a replica may have at most ", kMostMicrobatches,
                                                         " microbatches, but its ", share, " samples make more")))
        continue;
      if (excludes(size * workload_.sequence_length > kMostTokensOfMicrobatch,
                   cat("a microbatch may have at most ", kMostTokensOfMicrobatch, " tokens")))
        continue;
      for (const auto& placement : space_.placements) {
        layout.placement = placement;
        schedules(layout);
      }
    }
    excludes(!cut, cat("microbatches must divide the ", share, " samples of each of ", r, " replicas"));
  }

  // With one stage, all schedules and chunks are equivalent: only the first ones are tried.
  void schedules(Layout layout) {
    const auto layers = std::ssize(workload_.spec.layers);
    for (const auto& source : space_.schedules) {
      layout.schedule = source;
      const int own = own_chunks_per_stage(source.kind);
      for (const int chunks : own > 0 ? std::vector<int>{own} : space_.chunks) {
        layout.chunks_per_stage = own > 0 ? 1 : chunks;
        const bool full_groups = own > 0 || layout.microbatches % layout.pipeline == 0;
        if (!with_poor_ && !full_groups) continue;
        const auto rule = [&] {
          return cat(layout.pipeline, " stages of ", chunks, " chunks need as many layers, but the model has ", layers);
        };
        if (layout.pipeline * chunks > layers)
          excluded_.insert(rule());
        else
          memory_choices(layout);
        if (layout.pipeline == 1) return;
      }
    }
  }

  void memory_choices(Layout layout) {
    const auto sharded = shardings(layout.replicas);
    if (sharded.empty()) excluded_.insert(cat("the sharding degree must divide the ", layout.replicas, " replicas"));
    for (const auto& recompute : recomputes_) {
      const bool keeps_inputs =
          std::ranges::any_of(recompute, [](const Recompute& one) { return one.what == Recompute::What::layers; });
      layout.recompute = recompute;
      for (const auto& [stage, degree] : sharded) {
        layout.sharding.level = stage;
        layout.sharding.degree = degree;
        const auto& parallel = layout.tensor == 1 ? kWhole : space_.sequence_parallel;
        for (const bool sequence_parallel : parallel) {
          layout.sequence_parallel = sequence_parallel;
          for (const OffloadOptions& offload : space_.offload) {
            const bool moves = offload.everything || keeps_inputs, can_stay = space_.offload.size() > 1;
            if (offload.enabled && can_stay && (!moves || machines_.cluster.host.bytes_per_second == 0)) continue;
            layout.offload = offload;
            layouts_.push_back(layout);
          }
        }
      }
    }
  }

  // The sharding levels to try, each with the number of replicas that share a copy. A single replica holds everything;
  // if the first level says so, gradients that are partial over T are then sharded over the T ranks.
  std::set<std::pair<Sharding::Level, int>> shardings(int replicas) const {
    using enum Sharding::Level;
    const auto degrees = space_.sharding_degrees.empty() ? choices({}, replicas) : space_.sharding_degrees;
    std::set<std::pair<Sharding::Level, int>> found;
    for (const auto stage : space_.sharded) {
      if (stage < weights && (replicas > 1 || found.empty())) found.emplace(stage, stage == none ? 1 : replicas);
      for (const int degree : degrees) {
        const int shards = degree == 0 ? replicas : degree;
        if (stage == weights && shards > 1 && replicas % shards == 0) found.emplace(stage, shards);
      }
    }
    return found;
  }

  const Workload& workload_;
  const Machines& machines_;
  const SearchSpace& space_;
  std::vector<std::vector<Recompute>> recomputes_;
  std::vector<Layout> layouts_;
  std::set<std::string> excluded_;  // rules
  bool with_poor_ = false;
};

struct Entry {
  Layout layout;
  double score = 0;        // a lower bound of the ranking criterion; approximate for times, see kFillShare
  double bytes = 0;        // for the largest stage, if cannot_fit is set: a lower bound
  std::string cannot_fit;  // why no distribution of the blocks over the stages fits; empty: some may fit
};

class Searcher {
 public:
  Searcher(const Workload& workload, const Machines& machines, const SearchSpace& space, Ranking ranking)
      : workload_(workload), machines_(machines), space_(space), ranking_(ranking) {}

  SearchResult run() {
    const auto start = std::chrono::steady_clock::now();
    const auto layouts = Enumeration(workload_, machines_, space_).all();
    std::vector<Entry> entries = bounds(layouts);
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.score < b.score; });
    for (const auto& entry : entries) examine(entry);
    choose_placements();
    explain();
    result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(result_);
  }

 private:
  using SpansKey = std::tuple<int, int, int, Placement, int>;
  static SpansKey key_of_spans(const Layout& layout) {
    return {layout.tensor, layout.pipeline, layout.replicas, layout.placement, layout.sharding.degree};
  }
  const MeshSpans& spans(const Layout& layout) {
    const auto key = key_of_spans(layout);
    const auto found = spans_.find(key);
    if (found != spans_.end()) return found->second;
    return spans_[key] = mesh_spans(layout.mesh(), machines_.cluster.devices_per_node, layout.sharding.degree);
  }
  static std::pair<int, bool> key_of_workload(const Layout& layout) {
    return {layout.tensor, layout.sequence_parallel};
  }
  const Schedule& schedule(const Layout& layout) {
    const bool scattered = layout.sharded() >= Sharding::Level::gradients;
    const auto key =
        std::tuple(layout.schedule, layout.pipeline, layout.microbatches, layout.chunks_per_stage, scattered);
    const auto found = schedules_.find(key);
    if (found != schedules_.end()) return found->second;
    return schedules_[key] = training_schedule(layout);
  }

  const Workload& workload(const Layout& layout) {
    const auto key = key_of_workload(layout);
    const auto [entry, is_new] = workloads_.try_emplace(key, workload_);
    if (is_new && space_.spec) entry->second.spec = space_.spec(key.first, key.second);
    return entry->second;
  }

  double score(const Layout& layout, double seconds, double bytes) const {
    if (ranking_ == Ranking::memory) return bytes;
    const int nodes = machines_.cluster.nodes_of(layout.world());
    return ranking_ == Ranking::cost ? seconds * nodes : seconds;
  }

  // Entries of the layouts whose blocks may fit on the stages; the others become losers. Bounds are independent of each
  // other and computed in parallel.
  std::vector<Entry> bounds(const std::vector<Layout>& layouts) {
    std::vector<std::pair<const Layout*, Shared*>> to_compute;  // with a layout that needs it
    for (const auto& layout : layouts) {
      const auto [entry, is_new] = shared_.try_emplace(key_of_shared(layout));
      if (is_new) to_compute.emplace_back(&layout, &entry->second);
      if (is_new) spans(layout), workload(layout);
    }
    at::parallel_for(0, std::ssize(to_compute), 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) *to_compute[i].second = compute_shared(*to_compute[i].first);
    });
    std::vector<Entry> all, entries;
    for (const auto& layout : layouts) all.push_back(bound(layout));
    for (auto& entry : all) {
      if (entry.cannot_fit.empty())
        entries.push_back(std::move(entry));
      else
        result_.losers.push_back({std::move(entry.layout), std::move(entry.cannot_fit), false, entry.bytes});
    }
    return entries;
  }

  // Results shared by layouts that differ only in the order of work, chunks and number of microbatches.
  struct Shared {
    std::vector<LayerPrice> prices;
    double work = 0, largest = 0, way = 0;  // seconds: all layers, the largest layer, all transfers in both directions
    std::vector<BlockNeed> needs;           // see block_needs
  };
  using SharedKey = std::tuple<SpansKey, int, Sharding::Level, bool, bool, bool, bool, size_t>;
  SharedKey key_of_shared(const Layout& layout) {
    auto known = std::ranges::find(recomputes_, layout.recompute);
    if (known == recomputes_.end()) known = recomputes_.insert(known, layout.recompute);
    const size_t recompute = known - recomputes_.begin();
    return {key_of_spans(layout),
            layout.microbatch_size,
            layout.sharding.level,
            layout.sequence_parallel,
            layout.offload.enabled,
            layout.offload.everything,
            has_whole_backwards(layout.schedule),
            recompute};
  }

  Shared compute_shared(const Layout& layout) const {
    const Workload& workload = workloads_.at(key_of_workload(layout));
    Shared shared{.prices = layer_prices(workload, machines_, layout, spans_.at(key_of_spans(layout)))};
    for (const auto& price : shared.prices) {
      shared.work += price.whole();
      shared.way += price.forward + price.backward_input;
      shared.largest = std::max(shared.largest, price.whole());
    }
    shared.needs = block_needs(workload, layout);
    return shared;
  }

  Entry bound(const Layout& layout) {
    Entry entry{layout};
    const Shared& shared = shared_.at(key_of_shared(layout));
    const auto& [prices, work, largest, way, needs] = shared;
    const double m = layout.microbatches;
    // The last stage waits until the first microbatch has passed all other stages, which then wait for its gradient to
    // come back.
    const int chunks = std::max(layout.chunks_per_stage, own_chunks_per_stage(layout.schedule.kind));
    const double fill = kFillShare * way * (layout.pipeline - 1) / (layout.pipeline * chunks);
    const double seconds = m * std::max(work / layout.pipeline, largest) + fill;

    const double room = machines_.cluster.memory_bytes, device = least_device_bytes(layout).total();
    const StageNeeds stages(layout, needs);
    const int blocks = workload_.spec.block_count();
    if (stages.places(room - device) < blocks) {
      entry.bytes = stages.of_largest_stage(blocks) + device;
      entry.cannot_fit =
          cat("needs ", format_bytes(entry.bytes), " or more of ", format_bytes(room),
              " for states and activations of the blocks", device > 0 ? " and the GPU's runtime" : " alone");
    } else if (ranking_ == Ranking::memory) {
      entry.score = stages.of_largest_stage(blocks) + device;
    } else {
      entry.score = score(layout, seconds, 0);
    }
    return entry;
  }

  double score(const PlannedLayout& planned) const {
    return score(planned.layout, planned.step.seconds, planned.fit.bytes);
  }

  // The ranking criterion as text.
  std::string text_of(double score) const {
    if (ranking_ == Ranking::memory) return cat("needs ", format_bytes(score));
    return cat("takes ", score, ranking_ == Ranking::cost ? " node seconds" : " s");
  }

  void examine(const Entry& entry) {
    const bool full = std::ssize(result_.best) == space_.keep;
    if (full && entry.score >= score(result_.best.back())) {
      result_.losers.push_back({entry.layout,
                                cat(text_of(entry.score), " or more by its bound; place ", space_.keep, " ",
                                    text_of(score(result_.best.back()))),
                                true});
      return;
    }
    const auto& where = spans(entry.layout);
    const auto& list = schedule(entry.layout);
    const Workload& what = workload(entry.layout);
    const auto& prices = shared_.at(key_of_shared(entry.layout)).prices;
    const Cut cut = cut_model(what, machines_, entry.layout, list, where, prices, space_.memory_weight);
    // Most layouts with good bounds do not fit, or need more than the ranked ones: no need to estimate their step.
    const auto fit = memory_fit(machines_.cluster, cut.memory);
    if (!fit.fits) {
      result_.losers.push_back({entry.layout, fit.why, false, fit.bytes});
      return;
    }
    if (full && ranking_ == Ranking::memory && fit.bytes >= score(result_.best.back())) {
      result_.losers.push_back({entry.layout, text_of(fit.bytes), true});
      return;
    }
    auto planned = describe_layout(what, machines_, entry.layout, list, where, prices, cut);
    const auto place = std::upper_bound(result_.best.begin(), result_.best.end(), planned,
                                        [&](const auto& a, const auto& b) { return score(a) < score(b); });
    result_.best.insert(place, std::move(planned));
    if (std::ssize(result_.best) <= space_.keep) return;
    result_.losers.push_back({result_.best.back().layout, text_of(score(result_.best.back())), true});
    result_.best.pop_back();
  }

  void choose_placements() {
    if (ranking_ == Ranking::memory) return;  // ranking by memory does not depend on the placement
    for (auto& planned : result_.best) {
      std::vector<MeshSpans> tried = {spans(planned.layout)};
      Layout layout = planned.layout;
      for (const auto& placement : space_.other_placements) {
        layout.placement = placement;
        const MeshSpans& where = spans(layout);
        if (std::ranges::find(tried, where) != tried.end()) continue;
        tried.push_back(where);
        const Workload& what = workload(layout);
        const auto prices = layer_prices(what, machines_, layout, where);
        const Cut cut = cut_model(what, machines_, layout, schedule(layout), where, prices, space_.memory_weight);
        auto other = describe_layout(what, machines_, layout, schedule(layout), where, prices, cut);
        if (other.fit.fits && score(other) < score(planned)) planned = std::move(other);
      }
    }
    std::ranges::stable_sort(result_.best, {}, [&](const PlannedLayout& planned) { return score(planned); });
  }

  // States, for each ranked layout, the main reason why it is not the first.
  void explain() {
    for (size_t place = 0; place < result_.best.size(); ++place)
      result_.reasons.push_back(place == 0 ? "" : difference(result_.best[place], result_.best.front()));
  }

  std::string difference(const PlannedLayout& loser, const PlannedLayout& winner) const {
    if (ranking_ == Ranking::memory)
      return cat("needs ", std::round((loser.fit.bytes / winner.fit.bytes - 1) * 1000) / 10, " % more memory");
    const auto rest = [](const StepEstimate& step) { return step.reduction_seconds + step.optimizer_seconds; };
    // The time spent waiting for other stages; the bubble of a whole step includes the rest.
    const auto waits = [&](const StepEstimate& step) { return step.bubble_fraction * step.seconds - rest(step); };
    const auto recomputed = [](const PlannedLayout& planned) {
      int sum = 0;
      for (const auto& recompute : planned.layout.recompute) sum += static_cast<int>(recompute.what);
      return sum;
    };
    const auto works = [&](const StepEstimate& step) { return (1 - step.bubble_fraction) * step.seconds; };
    const double more_waiting = waits(loser.step) - waits(winner.step);
    const double more_rest = rest(loser.step) - rest(winner.step);
    const double more_work = works(loser.step) - works(winner.step);
    const auto total = cat(std::round((score(loser) / score(winner) - 1) * 1000) / 10, " % ",
                           ranking_ == Ranking::cost ? "more expensive" : "slower", ": ");
    const auto nodes = [&](const PlannedLayout& planned) { return machines_.cluster.nodes_of(planned.layout.world()); };
    if (nodes(loser) != nodes(winner)) return total + cat("on ", nodes(loser), " nodes instead of ", nodes(winner));
    if (more_work >= std::max(more_waiting, more_rest))
      return total + (recomputed(loser) > recomputed(winner)       ? "recomputes more"
                      : loser.layout.tensor > winner.layout.tensor ? "more communication over T, smaller products"
                      : loser.layout.sharded() > std::max(Sharding::Level::optimizer, winner.layout.sharded())
                          ? "gathers and reduces its shards for every microbatch"
                      : loser.layout.offload.enabled > winner.layout.offload.enabled
                          ? "moves more to the host and back"
                          : "its ops and collectives take longer");
    if (more_rest > more_waiting) return total + "reduction and optimizer take longer";
    return total + cat("its stages wait for each other for ",
                       std::round(waits(loser.step) / loser.step.seconds * 1000) / 10, " % of the step");
  }

  const Workload& workload_;
  const Machines& machines_;
  const SearchSpace& space_;
  const Ranking ranking_;
  SearchResult result_;
  std::map<SpansKey, MeshSpans> spans_;
  std::map<std::pair<int, bool>, Workload> workloads_;  // with the specs of the layouts
  std::map<std::tuple<ScheduleSource, int, int, int, bool>, Schedule> schedules_;
  std::vector<std::vector<Recompute>> recomputes_;  // what the layouts recompute
  std::map<SharedKey, Shared> shared_;
};

}  // namespace

const Loser& SearchResult::closest() const {
  return *std::ranges::min_element(losers, {}, &Loser::bytes);
}

SearchResult search(const Workload& workload, const Machines& machines, const SearchSpace& space, Ranking ranking) {
  return Searcher(workload, machines, space, ranking).run();
}

}  // namespace shardline
