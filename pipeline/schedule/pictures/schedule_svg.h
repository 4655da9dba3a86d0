// A schedule as a picture for documents and browsers.
#pragma once
#include <string>
#include <vector>

#include "pipeline/schedule/pictures/interval_picture.h"
#include "pipeline/schedule/pictures/schedule_grid.h"
#include "pipeline/schedule/schedule_simulation.h"

namespace shardline {

// A row per stage of what ran when.
std::vector<PictureRow> simulated_rows(const Schedule& schedule, const Simulation& simulation);

// A self-contained SVG of the schedule at these costs, with the share of time in which stages wait in the title. The
// schedule must pass check_schedule.
std::string schedule_svg(const Schedule& schedule, const UnitCosts& costs = {});

}  // namespace shardline
