// Draws a schedule as a picture for documents and browsers.
#pragma once
#include <string>
#include <vector>

#include "pipeline/schedule/pictures/interval_picture.h"
#include "pipeline/schedule/pictures/schedule_grid.h"
#include "pipeline/schedule/schedule_simulation.h"

namespace shardline {

// A row for each stage that shows what ran when.
std::vector<PictureRow> simulated_rows(const Schedule& schedule, const Simulation& simulation);

// A self-contained SVG of the schedule at these costs; the title states the fraction of time that stages wait. The
// schedule must pass check_schedule.
std::string schedule_svg(const Schedule& schedule, const UnitCosts& costs = {});

}  // namespace shardline
