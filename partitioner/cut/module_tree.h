// Assigns the modules of a tree to stages as documented by SageMaker's model-parallel library for nested modules: the
// algorithm of its paper (arXiv 2111.05972, algorithms 1 to 3) as in public re-implementations. Stages are passed down
// the tree from parents to children, and siblings are divided so that the parts cost as equally as possible.
//
// Rules that those sources leave open:
//   - The cost of a module covers its subtree: memory_weight x its share of all bytes + (1 - memory_weight) x its share
//     of all seconds; so the root costs 1. If a model has no bytes (seconds) at all, that share is 0.
//   - Modules that share a parameter become one node below the closest module that contains them all. The node is
//     placed where the first of them runs, costs their sum, and has the children of all.
//   - Among equally good cuts, earlier segments are shorter. Among equal quotients, the segment with fewer stages gets
//     the next one, and of those the first.
// One additional rule: no segment gets more stages than it has leaf modules, because it could not use them. So every
// stage is used if there are enough leaf modules; otherwise, costs of 10, 1, 1 and 1 on two stages would all be on the
// first. As in the sources, the stages of consecutive modules need not ascend.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace shardline {

// A tree as a list in execution order: the root comes first, parents before their children.
struct ModuleNode {
  std::string path;                  // "h.3.mlp"
  int parent = -1;                   // index in the list
  double bytes = 0, seconds = 0;     // excluding its children; not negative
  std::vector<std::string> sharing;  // names of its own parameters that it shares with other modules
};
using ModuleTree = std::vector<ModuleNode>;

// Returns the stage of each node, 0 .. stages - 1, which holds the node's own parameters. memory_weight: 0 to 1. Throws
// ConfigError.
std::vector<int> assign_tree(const ModuleTree& tree, int stages, double memory_weight);

// As above, with given stages: a module is placed on the stage given for its path or for the closest module that
// contains it, otherwise on default_stage. Throws ConfigError for a path that no module has, for a stage that does not
// exist, and if modules on different stages share a parameter.
std::vector<int> assign_paths(const ModuleTree& tree, const std::map<std::string, int>& stage_of_path,
                              int default_stage, int stages);

// The building blocks of these algorithms.
// Cuts costs into `count` runs of at least one element so that the most expensive run is as cheap as possible. Returns
// the end of each run.
std::vector<size_t> cut_evenly(const std::vector<double>& costs, size_t count);
// D'Hondt's method: each of `seats` goes to the part with the largest cost / (its seats + 1) among those with fewer
// than `most`. Returns the part that gets each seat, or fewer entries if all parts have reached `most`.
std::vector<size_t> allocate_seats(const std::vector<double>& costs, const std::vector<size_t>& most, size_t seats);

}  // namespace shardline
