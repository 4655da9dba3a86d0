// A plan as a picture: one self-contained HTML file.
#pragma once
#include <optional>
#include <string>

#include "engine/plan/forecast.h"
#include "engine/plan/layout_search.h"

namespace shardline {

// Memory of every rank compared with its device (of many ranks, only the one with the most memory on each stage), the
// predicted step, and the candidates of a search.
std::string plan_page(const Machines& machines, const Plan& plan, const Forecast& forecast,
                      const std::optional<Candidates>& candidates);

}  // namespace shardline
