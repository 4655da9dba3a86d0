// A page about one training run, about several runs side by side, or about a study.
#pragma once
#include <string>
#include <vector>

#include "engine/page/html_page.h"
#include "engine/report/run_history.h"

namespace shardline {

// Adds a table of the runs and their curves on common axes.
void add_curves(HtmlPage& page, const std::vector<RunHistory>& runs);
// Adds memory by rank compared with the plan, a step's timeline, and the worst predictions.
void add_details(HtmlPage& page, RunHistory& run);

}  // namespace shardline
