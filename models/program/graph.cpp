#include "models/program/graph.h"

#include <algorithm>
#include <map>
#include <utility>

namespace shardline {
namespace {

// All sequences of modules NAME.0, NAME.1, ... of one class that execute one after another.
std::vector<ModuleRun> find_runs(const Graph& graph) {
  struct Module {
    std::string type;
    int begin, end;
  };
  std::map<std::string, std::map<int, Module>> modules;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    for (const auto& module : graph.nodes[i].modules) {
      const size_t dot = module.path.rfind('.');
      if (dot == std::string::npos || dot + 1 == module.path.size() || module.path.size() - dot > 7 ||
          module.path.find_first_not_of("0123456789", dot + 1) != std::string::npos)
        continue;
      auto& run = modules[module.path.substr(0, dot)];
      const auto [found, is_new] =
          run.try_emplace(std::stoi(module.path.substr(dot + 1)), Module{module.type, int(i), 0});
      found->second.end = i + 1;
    }
  std::vector<ModuleRun> runs;
  for (const auto& [path, run] : modules) {
    ModuleRun blocks{.path = path};
    bool is_run = true;
    for (const auto& [number, module] : run) {
      is_run &=
          number == std::ssize(blocks.begins) && module.type == run.begin()->second.type && module.begin >= blocks.end;
      blocks.begins.push_back(module.begin);
      blocks.end = module.end;
    }
    if (is_run) runs.push_back(std::move(blocks));
  }
  return runs;
}

}  // namespace

std::string place_of(const GraphNode& call) {
  const bool is_in_module = !call.modules.empty() && !call.modules.back().path.empty();
  return is_in_module ? " in " + call.modules.back().path : "";
}

std::vector<ModuleRun> repeated_modules(const Graph& graph) {
  std::vector<ModuleRun> runs = find_runs(graph);
  if (runs.empty()) return {};
  std::ranges::stable_sort(runs, [](const ModuleRun& a, const ModuleRun& b) {
    return std::pair(-std::ssize(a.begins), a.path.size()) < std::pair(-std::ssize(b.begins), b.path.size());
  });
  std::vector<ModuleRun> chosen = {runs.front()};
  std::ranges::stable_sort(
      runs, [](const ModuleRun& a, const ModuleRun& b) { return a.end - a.begin() > b.end - b.begin(); });
  for (const auto& run : runs) {
    constexpr double kLeastShare = 0.25;
    const bool is_apart = std::ranges::all_of(
        chosen, [&](const ModuleRun& other) { return run.end <= other.begin() || run.begin() >= other.end; });
    if (is_apart && run.nodes_of_block() >= kLeastShare * chosen.front().nodes_of_block()) chosen.push_back(run);
  }
  std::ranges::sort(chosen, {}, [](const ModuleRun& blocks) { return blocks.begin(); });
  return chosen;
}

}  // namespace shardline
