// Searches for the best layout: for `plan --search`, among all layouts that the planner can make; for "auto", among
// those that a config leaves open.
#pragma once
#include <string>
#include <vector>

#include "engine/plan/plan.h"
#include "partitioner/search/search.h"

namespace shardline {

Ranking ranking_from(const std::string& name);  // "time", "cost" or "memory"

struct Candidates {
  Ranking ranking = Ranking::time;
  SearchResult found;
  std::vector<std::vector<std::string>> settings;  // by place in found.best: what to set in the config
  double hourly_price = 0;                         // per node; 0: not stated
};

// Searches all layouts of the plan's workload over the config's ranks, or over all devices of the cluster if the config
// does not give the number of processes. A ranking by cost also tries fewer nodes. For each, the planner places the
// layers and splits every unit of which all T ranks get a part, unless the config says true or false. If hosts are
// known, at most as many nodes are used, unless their number is assumed. written: the config that the settings apply
// to; its degrees may be "auto", while those of `config` are chosen. assumed: what `planned` was planned with.
Candidates search_layouts(const Config& written, const Config& config, const PlannedModel& planned, Ranking ranking,
                          const Assumptions& assumed = {});

// Whether the config has a degree that is "auto".
bool leaves_degrees_open(const Config& config);

// The config with every "auto" degree replaced by that of the fastest layout that fits. Throws ConfigError if none
// fits.
Config with_chosen_degrees(const Config& config, const Assumptions& assumed = {});

}  // namespace shardline
