// The candidates of a search as JSON and as a table.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/plan/forecast.h"
#include "engine/plan/layout_search.h"

namespace shardline {

// The layouts in `candidates`, the best first, each with the reason why it is not better; of the layouts without a
// rank, only the first ones.
nlohmann::json candidates_json(const Candidates& candidates);
// A row for each ranked layout and for `own`, the layout of the forecast; then the settings of the best layout, for a
// shell.
std::string candidates_text(const Candidates& candidates, const Layout& own, const Forecast& forecast);

}  // namespace shardline
