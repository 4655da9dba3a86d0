// Which layout would be best: all that the planner can think of for `plan --search`, and those that a config leaves
// open with "auto".
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/plan/forecast.h"
#include "engine/run/model_source.h"
#include "partitioner/search/search.h"

namespace shardline {

Ranking ranking_from(const std::string& name);  // "time", "cost" or "memory"

struct Candidates {
  Ranking ranking = Ranking::time;
  SearchResult found;
  std::vector<std::vector<std::string>> settings;  // by place in found.best: what to set in the config
  double hourly_price = 0;                         // of a node; 0: not stated
};

// All layouts of the plan's workload over the config's ranks, or over all devices of the cluster where it names no
// number of processes; ranked by cost also over fewer nodes. The planner places their layers, and splits what gives
// every one of the T ranks a part, unless the config asks otherwise by name. written: the config that settings are for,
// in which degrees may be "auto" that `config` has chosen.
Candidates search_layouts(const Config& written, const Config& config, const ModelSource& model, const Plan& plan,
                          const Machines& machines, Ranking ranking);

// `candidates`, best first, each with the reason it lost; of those that are not ranked only the first ones.
nlohmann::json candidates_json(const Candidates& candidates);
std::string candidates_text(const Candidates& candidates, const Forecast& own);

// The config with every degree that it gives as "auto" chosen: the fastest layout that fits. Throws ConfigError where
// none fits.
Config with_chosen_degrees(const Config& config, const Assumptions& assumed = {});

}  // namespace shardline
