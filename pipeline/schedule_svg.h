// A schedule as a picture for documents and browsers.
#pragma once
#include <string>

#include "pipeline/schedule_grid.h"

namespace shardline {

// A self-contained SVG: a row per stage, time to the right, a box per forward, input gradient and weight gradient with
// its microbatch where it is wide enough, later chunks darker; a legend, and the share of time in which stages wait in
// the title. The schedule must pass check_schedule.
std::string schedule_svg(const Schedule& schedule, const UnitCosts& costs = {});

}  // namespace shardline
