// A plan as a picture: one self-contained HTML file.
#pragma once
#include <optional>
#include <string>

#include "engine/plan/layout_search.h"

namespace shardline {

// Memory of every rank against its device (where there are many ranks, of the one with most on each stage), the step
// as it is predicted, and the candidates of a search.
std::string plan_page(const Machines& machines, const Plan& plan, const Forecast& forecast,
                      const std::optional<Candidates>& candidates);

}  // namespace shardline
