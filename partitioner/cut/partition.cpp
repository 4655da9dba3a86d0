#include "partitioner/cut/partition.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <unordered_set>

#include "core/error.h"

namespace shardline {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1e-12;  // relative; sums of the same costs in a different order count as equal
constexpr double kBetter = 1e-9;     // relative; a smaller improvement is not worth searching for
constexpr int kMostNodes = 20000;    // visited in a search for a better solution

using Sums = std::vector<double>;  // Sums[i]: the sum over layers 0 .. i-1

Sums sums_of(const std::vector<double>& values, size_t layers) {
  Sums sums(layers + 1);
  if (!values.empty()) std::partial_sum(values.begin(), values.end(), sums.begin() + 1);
  return sums;
}

// Costs and bytes of layers [i, j) in a chunk.
class Costs {
 public:
  explicit Costs(const PartitionProblem& problem)
      : problem_(problem),
        layers_(problem.seconds.size()),
        seconds_(sums_of(problem.seconds, layers_)),
        state_(sums_of(problem.state_bytes, layers_)),
        kept_(sums_of(problem.kept_bytes, layers_)) {
    double most_kept = 0;
    for (size_t chunk = 0; chunk < chunks(); ++chunk) most_kept = std::max(most_kept, count(chunk));
    const double all_bytes = state_.back() + kept_.back() * most_kept, all_seconds = seconds_.back();
    const double alpha = problem.memory_weight;
    const bool mixed = alpha > 0 && alpha < 1;
    by_second_ = (1 - alpha) * (mixed && all_seconds > 0 ? 1 / all_seconds : 1);
    by_byte_ = alpha * (mixed && all_bytes > 0 ? 1 / all_bytes : 1);
  }

  size_t layers() const { return layers_; }
  size_t chunks() const { return problem_.stage_of_chunk.size(); }
  size_t stage(size_t chunk) const { return problem_.stage_of_chunk[chunk]; }
  size_t stages() const {
    return 1 + *std::max_element(problem_.stage_of_chunk.begin(), problem_.stage_of_chunk.end());
  }
  double cap(size_t stage) const { return problem_.memory_caps.empty() ? kNever : problem_.memory_caps[stage]; }

  double bytes(size_t chunk, size_t i, size_t j) const {
    return state_[j] - state_[i] + count(chunk) * (kept_[j] - kept_[i]);
  }
  double cost(size_t chunk, size_t i, size_t j) const {
    const double bytes_cost = by_byte_ > 0 ? by_byte_ * bytes(chunk, i, j) : 0;
    return bytes_cost + by_second_ * (seconds_[j] - seconds_[i]);
  }
  // The cost of a cut before layer j, at the end of `chunk`, for each of the two stages.
  double cut(size_t chunk, size_t j) const {
    if (problem_.cut_seconds.empty() || stage(chunk) == stage(chunk + 1)) return 0;
    return by_second_ * problem_.cut_seconds[j - 1];
  }

 private:
  double count(size_t chunk) const { return problem_.kept_counts.empty() ? 1 : problem_.kept_counts[chunk]; }

  const PartitionProblem& problem_;
  size_t layers_;
  Sums seconds_, state_, kept_;
  double by_second_ = 1, by_byte_ = 0;
};

// ends[c]: one past the last layer of chunk c.
using Ends = std::vector<size_t>;

std::vector<int> chunk_of_layer(const Ends& ends) {
  std::vector<int> chunks;
  for (size_t chunk = 0; chunk < ends.size(); ++chunk) chunks.resize(ends[chunk], chunk);
  return chunks;
}

// Treats each chunk as a stage, which is exact with one chunk per stage. Empty if the caps cannot be met.
Ends by_dynamic_programming(const Costs& costs, bool with_caps) {
  const size_t n = costs.layers(), chunks = costs.chunks();
  // best[c][i]: the smallest possible cost of the most expensive of the chunks from c on, over layers i .. n-1.
  std::vector<std::vector<double>> best(chunks + 1, std::vector<double>(n + 1, kNever));
  std::vector<std::vector<size_t>> end(chunks, std::vector<size_t>(n + 1, n + 1));
  best[chunks][n] = 0;
  for (size_t c = chunks; c-- > 0;)
    for (size_t i = n; i-- > 0;) {
      if ((i == 0) != (c == 0)) continue;
      const double before = c > 0 ? costs.cut(c - 1, i) : 0;
      for (size_t j = i + 1; j <= n; ++j) {
        const double layers = costs.cost(c, i, j) + before;
        if (layers >= best[c][i] || (with_caps && costs.bytes(c, i, j) > costs.cap(costs.stage(c)))) break;
        if (best[c + 1][j] == kNever) continue;
        const double own = layers + (c + 1 < chunks ? costs.cut(c, j) : 0);
        const double cost = std::max(own, best[c + 1][j]);
        if (cost < best[c][i]) {  // the smallest j wins, so that earlier stages are lighter
          best[c][i] = cost;
          end[c][i] = j;
        }
      }
    }
  Ends ends;
  for (size_t c = 0, i = 0; c < chunks; ++c) {
    i = end[c][i];
    if (i > n) return {};
    ends.push_back(i);
  }
  return ends;
}

struct Judgement {
  double worst = kNever;    // the worst of any stage; infinite if a cap is exceeded
  double squares = kNever;  // sum of squares of the chunks' costs
  bool better_than(const Judgement& other) const {
    if (worst < other.worst * (1 - kRounding)) return true;
    return worst <= other.worst * (1 + kRounding) && squares < other.squares * (1 - kRounding);
  }
};

Judgement judge(const Costs& costs, const Ends& ends) {
  std::vector<double> load(costs.stages()), bytes(costs.stages());
  double squares = 0;
  for (size_t c = 0, i = 0; c < ends.size(); i = ends[c++]) {
    const double cost = costs.cost(c, i, ends[c]);
    squares += cost * cost;
    load[costs.stage(c)] += cost;
    bytes[costs.stage(c)] += costs.bytes(c, i, ends[c]);
    if (c + 1 == ends.size()) continue;
    load[costs.stage(c)] += costs.cut(c, ends[c]);
    load[costs.stage(c + 1)] += costs.cut(c, ends[c]);
  }
  for (size_t stage = 0; stage < load.size(); ++stage)
    if (bytes[stage] > costs.cap(stage)) return {};
  return {*std::max_element(load.begin(), load.end()), squares};
}

// Moves chunk boundaries by one layer as long as that improves the solution.
void move_borders(const Costs& costs, Ends& ends) {
  auto best = judge(costs, ends);
  const auto move = [&](size_t chunk, size_t to) {
    const size_t from = ends[chunk], begin = chunk > 0 ? ends[chunk - 1] : 0;
    if (to <= begin || to >= ends[chunk + 1]) return false;
    ends[chunk] = to;
    const auto judgement = judge(costs, ends);
    if (judgement.better_than(best)) {
      best = judgement;
      return true;
    }
    ends[chunk] = from;
    return false;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t chunk = 0; chunk + 1 < ends.size(); ++chunk)
      moved |= move(chunk, ends[chunk] + 1) || move(chunk, ends[chunk] - 1);
  }
}

// Searches for an assignment whose most expensive stage costs less than `bound`.
class Search {
 public:
  Search(const Costs& costs, double bound)
      : costs_(costs), bound_(bound), loads_(costs.stages()), bytes_(costs.stages()), ends_(costs.chunks()) {
    find_class();
    const size_t n = costs.layers(), last = costs.chunks() - 1;
    add(0, 0, 1, 1);  // the chunks of the first and the last layer are known
    add(last, n - 1, n, 1);
    for (size_t chunk = 0; chunk < last; ++chunk) {  // every cut costs at least as much as the cheapest one
      double cheapest = kNever;
      for (size_t j = 1; j < n; ++j) cheapest = std::min(cheapest, costs.cut(chunk, j));
      cheapest_cut_.push_back(cheapest);
      loads_[costs.stage(chunk)] += cheapest;
      loads_[costs.stage(chunk + 1)] += cheapest;
    }
  }

  bool find() { return place(0, 0) && !given_up(); }
  bool given_up() const { return nodes_ > kMostNodes; }
  const Ends& ends() const { return ends_; }

 private:
  // Finds the largest class of layers with equal cost in any chunk; it limits what can still fit.
  void find_class() {
    std::map<std::vector<float>, std::vector<size_t>> classes;
    for (size_t layer = 1; layer + 1 < costs_.layers(); ++layer) {
      std::vector<float> cost;  // rounded, because differences of sums are not exact
      for (size_t chunk = 0; chunk < costs_.chunks(); ++chunk) cost.push_back(costs_.cost(chunk, layer, layer + 1));
      classes[cost].push_back(layer);
    }
    const std::vector<size_t>* largest = nullptr;
    for (const auto& [cost, members] : classes)
      if (!largest || members.size() > largest->size()) largest = &members;
    in_class_.assign(costs_.layers() + 1, 0);
    least_.assign(costs_.stages(), kNever);
    least_bytes_.assign(costs_.stages(), kNever);
    if (!largest) return;
    for (const size_t layer : *largest) in_class_[layer] = 1;
    for (size_t i = costs_.layers(); i-- > 0;) in_class_[i] += in_class_[i + 1];  // from layer i on
    for (size_t chunk = 0; chunk < costs_.chunks(); ++chunk) {
      auto& least = least_[costs_.stage(chunk)];
      least = std::min(least, costs_.cost(chunk, largest->front(), largest->front() + 1));
      auto& least_bytes = least_bytes_[costs_.stage(chunk)];
      for (const size_t layer : *largest) least_bytes = std::min(least_bytes, costs_.bytes(chunk, layer, layer + 1));
    }
  }

  void add(size_t chunk, size_t i, size_t j, double sign) {
    loads_[costs_.stage(chunk)] += sign * costs_.cost(chunk, i, j);
    bytes_[costs_.stage(chunk)] += sign * costs_.bytes(chunk, i, j);
  }

  // Whether more layers of the class remain than fit into the stages, by time and by memory.
  bool hopeless(size_t i) const {
    double places = 0;
    for (size_t stage = 0; stage < loads_.size(); ++stage) {
      if (loads_[stage] >= bound_ || bytes_[stage] > costs_.cap(stage)) return true;
      const double by_time = room(bound_ - loads_[stage], least_[stage]);
      places += std::min(by_time, room(costs_.cap(stage) - bytes_[stage], least_bytes_[stage]));
    }
    return places < in_class_[i];
  }
  static double room(double left, double each) {
    return each > 0 && each < kNever && left < kNever ? std::floor(left / each * (1 + 10 * kRounding)) : kNever;
  }

  bool place(size_t chunk, size_t i) {
    if (++nodes_ > kMostNodes || hopeless(i)) return false;
    const size_t n = costs_.layers(), chunks = costs_.chunks();
    if (chunk + 1 == chunks) return place_last(i);
    if (!visited_.insert(key(chunk, i)).second) return false;
    // The first and the last layer have already been counted.
    const size_t begin = std::max<size_t>(i, 1), most = n - (chunks - 1 - chunk);
    const auto stage = costs_.stage(chunk), next = costs_.stage(chunk + 1);
    const size_t middle = std::clamp(balanced_end(chunk, begin), i + 1, most);
    for (size_t step = 0; step <= 2 * n; ++step) {  // middle, middle + 1, middle - 1, ...
      const size_t away = (step + 1) / 2;
      if (step % 2 ? middle + away > most : middle < i + 1 + away) continue;
      const size_t j = step % 2 ? middle + away : middle - away;
      const double cut = costs_.cut(chunk, j) - cheapest_cut_[chunk];  // in addition to what has been counted
      const auto loads = std::pair(loads_[stage], loads_[next]);
      const double bytes = bytes_[stage];
      add(chunk, begin, std::max(begin, j), 1);
      loads_[stage] += cut;
      loads_[next] += cut;
      ends_[chunk] = j;
      const bool found = place(chunk + 1, j);
      loads_[next] = loads.second;
      loads_[stage] = loads.first;
      bytes_[stage] = bytes;
      if (found) return true;
      if (given_up()) return false;
    }
    return false;
  }

  bool place_last(size_t i) {
    const size_t n = costs_.layers(), last = costs_.chunks() - 1, stage = costs_.stage(last);
    const size_t begin = std::max<size_t>(i, 1);
    const double cost = begin < n - 1 ? costs_.cost(last, begin, n - 1) : 0;
    const double bytes = begin < n - 1 ? costs_.bytes(last, begin, n - 1) : 0;
    ends_[last] = n;
    return loads_[stage] + cost < bound_ && bytes_[stage] + bytes <= costs_.cap(stage);
  }

  // The end of a chunk that takes its share of what its stage has room for.
  size_t balanced_end(size_t chunk, size_t begin) const {
    const size_t stage = costs_.stage(chunk);
    int left = 0;
    for (size_t c = chunk; c < costs_.chunks(); ++c) left += costs_.stage(c) == stage;
    const double room = (bound_ - loads_[stage]) / left;
    size_t j = begin;
    while (j + 1 < costs_.layers() && costs_.cost(chunk, begin, j + 1) <= room) ++j;
    return j;
  }

  std::string key(size_t chunk, size_t i) const {
    std::string bytes(sizeof(size_t) * 2 + sizeof(double) * 2 * loads_.size(), '\0');
    const std::array place = {chunk, i};
    std::memcpy(bytes.data(), place.data(), sizeof place);
    char* at = bytes.data() + sizeof place;
    for (const auto* values : {&loads_, &bytes_}) {
      std::memcpy(at, values->data(), values->size() * sizeof(double));
      at += values->size() * sizeof(double);
    }
    return bytes;
  }

  const Costs& costs_;
  const double bound_;
  std::vector<double> loads_, bytes_;  // by stage
  Ends ends_;
  std::vector<int> in_class_;                // by layer: members of the class from this layer on
  std::vector<double> least_, least_bytes_;  // by stage: cost and bytes of one member of the class
  std::vector<double> cheapest_cut_;         // by chunk: the cheapest cut after it
  std::unordered_set<std::string> visited_;
  int nodes_ = 0;
};

// Returns empty ends if the caps cannot be met.
std::pair<Ends, bool> by_branch_and_bound(const Costs& costs) {
  Ends best = by_dynamic_programming(costs, false);
  move_borders(costs, best);
  for (;;) {
    const double worst = judge(costs, best).worst;
    Search search(costs, worst == kNever ? std::numeric_limits<double>::max() : worst * (1 - kBetter));
    if (!search.find()) {
      if (worst < kNever) move_borders(costs, best);
      return {worst < kNever ? best : Ends{}, !search.given_up()};
    }
    best = search.ends();
  }
}

}  // namespace

Partition partition(const PartitionProblem& problem) {
  const Costs costs(problem);
  if (costs.layers() < costs.chunks())
    throw ConfigError(cat("there are ", costs.chunks(), " chunks, but only ", costs.layers(), " layers to place"));
  const bool one_each = costs.stages() == costs.chunks();
  auto [ends, exact] = one_each ? std::pair(by_dynamic_programming(costs, true), true) : by_branch_and_bound(costs);
  if (ends.empty())
    throw ConfigError(cat("no way to cut the ", costs.layers(), " layers into ", costs.chunks(), " chunks on ",
                          costs.stages(), " stages ", exact ? "keeps" : "was found that keeps",
                          " every stage within its memory: use more stages, recompute more, shard more, or use smaller "
                          "microbatches"));
  return {chunk_of_layer(ends), judge(costs, ends).worst, exact};
}

}  // namespace shardline
