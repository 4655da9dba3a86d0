#include "partitioner/cut/module_tree.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace shardline {
namespace {

using Stages = std::vector<int>;

void check(const ModuleTree& tree, int stages) {
  if (stages < 1) throw ConfigError(cat("a model needs at least one stage, not ", stages));
  if (tree.empty()) throw ConfigError("there is no module to place on a stage");
  for (size_t i = 0; i < tree.size(); ++i) {
    const auto& node = tree[i];
    SL_ASSERT(i == 0 ? node.parent == -1 : node.parent >= 0 && std::cmp_less(node.parent, i), "module ", node.path,
              " comes before its parent");
    if (!(node.bytes >= 0) || !(node.seconds >= 0))
      throw ConfigError(cat("module ", node.path, ": costs must not be negative; got ", node.bytes, " bytes and ",
                            node.seconds, " seconds"));
  }
}

// Maps modules that share a parameter to the same number, the index of the first of them.
std::vector<int> merged(const ModuleTree& tree) {
  std::vector<int> first(tree.size());
  std::iota(first.begin(), first.end(), 0);
  std::map<std::string, int> holder;
  for (size_t i = 0; i < tree.size(); ++i)
    for (const auto& parameter : tree[i].sharing) {
      const int mine = first[i];
      const int other = first[holder.emplace(parameter, mine).first->second];
      const auto [from, to] = std::pair(std::max(mine, other), std::min(mine, other));
      std::replace(first.begin(), first.end(), from, to);
    }
  return first;
}

// The tree of merged modules. A node is identified by the number of the first of its modules; other numbers are unused.
class MergedTree {
 public:
  MergedTree(const ModuleTree& tree, double memory_weight)
      : tree_(tree), node_of_(merged(tree)), children_(tree.size()), cost_(tree.size()), leaves_(tree.size()) {
    double bytes = 0, seconds = 0;
    for (const auto& module : tree) bytes += module.bytes, seconds += module.seconds;
    for (size_t i = 0; i < tree.size(); ++i)
      cost_[index(i)] += (bytes > 0 ? memory_weight * tree[i].bytes / bytes : 0) +
                         (seconds > 0 ? (1 - memory_weight) * tree[i].seconds / seconds : 0);
    find_parents();
    add_up(0);
  }

  int node_of(size_t module) const { return node_of_[module]; }
  const std::vector<int>& children(int node) const { return children_[node]; }
  double cost(int node) const { return cost_[node]; }
  size_t leaves(int node) const { return leaves_[node]; }

 private:
  size_t index(int module) const { return node_of_[module]; }

  std::vector<int> ancestors(int module) const {  // starting with itself
    std::vector<int> result;
    for (; module >= 0; module = tree_[module].parent) result.push_back(module);
    return result;
  }

  // The closest module that contains both; it may be one of them.
  int common(int a, int b) const {
    const auto around = ancestors(b);
    while (std::find(around.begin(), around.end(), a) == around.end()) a = tree_[a].parent;
    return a;
  }

  void find_parents() {
    std::map<int, int> around;  // by node: the module that contains all of its modules
    for (size_t i = 0; i < tree_.size(); ++i) {
      const auto [entry, is_new] = around.emplace(node_of_[i], i);
      if (!is_new) entry->second = common(entry->second, i);
    }
    for (auto [node, module] : around) {  // in execution order
      while (module >= 0 && node_of_[module] == node) module = tree_[module].parent;
      if (module >= 0) children_[index(module)].push_back(node);
    }
  }

  void add_up(int node) {
    const size_t i = node;
    for (const int child : children(node)) {
      add_up(child);
      cost_[i] += cost(child);
      leaves_[i] += leaves(child);
    }
    if (children(node).empty()) leaves_[i] = 1;
  }

  const ModuleTree& tree_;
  std::vector<int> node_of_;
  std::vector<std::vector<int>> children_;
  std::vector<double> cost_;    // costs of the subtrees
  std::vector<size_t> leaves_;  // number of leaves of the subtree
};

class Assignment {
 public:
  Assignment(const MergedTree& tree, size_t modules, int stages) : tree_(tree), stages_of_(modules) {
    Stages all(stages);
    std::iota(all.begin(), all.end(), 0);
    descend(0, all);
  }
  int stage(int node) const { return stages_of_[node].front(); }

 private:
  void descend(int node, const Stages& stages) {
    stages_of_[node] = stages;
    if (stages.size() == 1)
      give(tree_.children(node), stages);
    else if (!tree_.children(node).empty())
      share(stages, tree_.children(node));
  }

  void give(const std::vector<int>& nodes, const Stages& stages) {
    for (const int node : nodes) descend(node, stages);
  }

  // Distributes several stages over nodes that run one after another.
  void share(const Stages& stages, const std::vector<int>& nodes) {
    std::vector<double> costs;
    for (const int node : nodes) costs.push_back(tree_.cost(node));
    const auto ends = cut_evenly(costs, std::min(stages.size(), nodes.size()));
    std::vector<double> segment_costs(ends.size());
    std::vector<size_t> most(ends.size());
    for (size_t s = 0, i = 0; i < nodes.size(); s += ++i == ends[s]) {
      segment_costs[s] += costs[i];
      most[s] += tree_.leaves(nodes[i]);
    }
    const auto segment_of_stage = allocate_seats(segment_costs, most, stages.size());
    for (size_t s = 0, begin = 0; s < ends.size(); begin = ends[s++]) {
      const std::vector<int> segment(nodes.begin() + begin, nodes.begin() + ends[s]);
      Stages own;
      for (size_t i = 0; i < segment_of_stage.size(); ++i)
        if (segment_of_stage[i] == s) own.push_back(stages[i]);
      if (own.empty())
        give(segment, {stages.front()});
      else if (own.size() == 1 || segment.size() == 1)
        give(segment, own);
      else
        share(own, segment);
    }
  }

  const MergedTree& tree_;
  std::vector<Stages> stages_of_;
};

}  // namespace

std::vector<int> assign_tree(const ModuleTree& tree, int stages, double memory_weight) {
  check(tree, stages);
  if (!(memory_weight >= 0 && memory_weight <= 1))
    throw ConfigError(cat("memory_weight is ", memory_weight, "; it must be from 0 (time) to 1 (memory)"));
  const MergedTree nodes(tree, memory_weight);
  const Assignment assignment(nodes, tree.size(), stages);
  std::vector<int> stage_of_node;
  for (size_t i = 0; i < tree.size(); ++i) stage_of_node.push_back(assignment.stage(nodes.node_of(i)));
  return stage_of_node;
}

std::vector<int> assign_paths(const ModuleTree& tree, const std::map<std::string, int>& stage_of_path,
                              int default_stage, int stages) {
  check(tree, stages);
  const auto in_range = [&](int stage, const std::string& what) {
    if (stage < 0 || stage >= stages)
      throw ConfigError(cat(what, " is ", stage, ", but stages go from 0 to ", stages - 1));
  };
  in_range(default_stage, "default_partition");
  for (const auto& [path, stage] : stage_of_path) {
    in_range(stage, "the stage of module " + path);
    if (std::none_of(tree.begin(), tree.end(), [&](const ModuleNode& node) { return node.path == path; }))
      throw ConfigError(cat("no module has the path ", path, "; give one of the paths that the plan shows"));
  }
  std::vector<int> stage_of_node;
  for (const auto& node : tree) {
    const auto given = stage_of_path.find(node.path);
    const int around = node.parent < 0 ? default_stage : stage_of_node[node.parent];
    stage_of_node.push_back(given == stage_of_path.end() ? around : given->second);
  }
  const auto first = merged(tree);
  for (size_t i = 0; i < tree.size(); ++i)
    if (const size_t other = first[i]; stage_of_node[i] != stage_of_node[other])
      throw ConfigError(cat("modules ", tree[other].path, " and ", tree[i].path, " share a parameter, but are on ",
                            "stages ", stage_of_node[other], " and ", stage_of_node[i], "; give both the same stage"));
  return stage_of_node;
}

std::vector<size_t> cut_evenly(const std::vector<double>& costs, size_t count) {
  const size_t n = costs.size();
  SL_ASSERT(count >= 1 && count <= n, count, " segments of ", n, " nodes");
  std::vector<double> sums(n + 1);
  std::partial_sum(costs.begin(), costs.end(), sums.begin() + 1);
  // least[k][b]: the smallest possible cost of the most expensive of k + 1 segments over the first b nodes. begin:
  // where the last segment begins.
  std::vector<std::vector<double>> least(count, std::vector<double>(n + 1, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<size_t>> begin(count, std::vector<size_t>(n + 1));
  least[0] = sums;
  for (size_t k = 1; k < count; ++k)
    for (size_t b = k + 1; b <= n; ++b)
      for (size_t c = k; c < b; ++c) {
        const double cost = std::max(least[k - 1][c], sums[b] - sums[c]);
        if (cost < least[k][b]) least[k][b] = cost, begin[k][b] = c;
      }
  std::vector<size_t> ends(count, n);
  for (size_t k = count; k-- > 1;) ends[k - 1] = begin[k][ends[k]];
  return ends;
}

std::vector<size_t> allocate_seats(const std::vector<double>& costs, const std::vector<size_t>& most, size_t seats) {
  std::vector<size_t> held(costs.size()), part_of_seat;
  const auto quotient = [&](size_t part) { return costs[part] / (held[part] + 1); };
  while (part_of_seat.size() < seats) {
    size_t best = costs.size();
    for (size_t part = 0; part < costs.size(); ++part) {
      if (held[part] == most[part]) continue;
      if (best == costs.size() || quotient(part) > quotient(best) ||
          (quotient(part) == quotient(best) && held[part] < held[best]))
        best = part;
    }
    if (best == costs.size()) break;
    ++held[best];
    part_of_seat.push_back(best);
  }
  return part_of_seat;
}

}  // namespace shardline
