// Assigns the modules of a tree to stages, as SageMaker's model-parallel library documents it for nested modules: the
// algorithm of its paper (arXiv 2111.05972, algorithms 1 to 3) as in public re-implementations. Stages are passed down
// the tree from parents to children, and siblings are divided where the costs of the parts are most equal.
//
// Rules where those sources leave something open:
//   - A module's cost is that of its subtree, memory_weight x its share of all bytes + (1 - memory_weight) x its share
//     of all seconds; so the root costs 1. Where a model has no bytes (seconds) at all, that share is 0.
//   - Modules that share a parameter become one node below the closest module that contains them all; it is placed
//     where the first of them runs, costs their sum, and has the children of all.
//   - Among cuts that are equally good, earlier segments are shorter. Among equal quotients, the segment with fewer
//     stages gets the next one, and of those the first.
// One additional rule: no segment gets more stages than it has modules without children, which could not use them. So
// every stage is used where there are that many such modules; costs of 10, 1, 1 and 1 on two stages would otherwise all
// be on the first. As in the sources, stages of consecutive modules need not ascend.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace shardline {

// A tree as a list, in execution order: parents come before their children, the root first.
struct ModuleNode {
  std::string path;                  // "h.3.mlp"
  int parent = -1;                   // its place in the list
  double bytes = 0, seconds = 0;     // its own, without its children's; not negative
  std::vector<std::string> sharing;  // of its own parameters, by any name: those that others in the list hold, too
};
using ModuleTree = std::vector<ModuleNode>;

// The stage of each node, 0 .. stages - 1: where its own parameters are. memory_weight: 0 to 1. Throws ConfigError.
std::vector<int> assign_tree(const ModuleTree& tree, int stages, double memory_weight);

// The same by hand: a module goes to the stage that is given for its path or for the closest module around it, and else
// on default_stage. Throws ConfigError for a path that no module has, a stage that does not exist, and for modules that
// share a parameter on different stages.
std::vector<int> assign_paths(const ModuleTree& tree, const std::map<std::string, int>& stage_of_path,
                              int default_stage, int stages);

// The parts of those algorithms.
// Cuts costs into `count` runs of at least one, the most expensive as cheap as possible: the end of each.
std::vector<size_t> cut_evenly(const std::vector<double>& costs, size_t count);
// D'Hondt: each of `seats` goes to the part with the largest cost / (its seats + 1) of those that have not their most.
// Returns the part of each seat; fewer, where all parts have their most.
std::vector<size_t> allocate_seats(const std::vector<double>& costs, const std::vector<size_t>& most, size_t seats);

}  // namespace shardline
