// A study as a page: its tables and figures.
#pragma once
#include <string>

#include "engine/page/html_page.h"
#include "engine/study/study_summary.h"

namespace shardline {

// Adds the tables; time and cost over devices; the metric over the global batch with its line; the map of the design;
// and time against cost. Figures that have nothing to show are left out.
void add_study(HtmlPage& page, const StudySummary& summary);
std::string study_page(const StudySummary& summary);

}  // namespace shardline
