#include "pipeline/schedule/pictures/schedule_svg.h"

#include <iomanip>
#include <sstream>

#include "core/error.h"
#include "pipeline/schedule/pictures/interval_picture.h"
#include "pipeline/schedule/schedule_simulation.h"

namespace shardline {

std::vector<PictureRow> simulated_rows(const Schedule& schedule, const Simulation& simulation) {
  std::vector<PictureRow> rows;
  for (int stage = 0; stage < schedule.stages; ++stage) {
    auto& row = rows.emplace_back(PictureRow{cat("stage ", stage), {}});
    const auto& list = schedule.instructions[stage];
    for (size_t i = 0; i < list.size(); ++i) {
      const auto [start, end] = simulation.intervals[stage][i];
      if (computes(list[i].op) && end > start) row.boxes.push_back({start, end, list[i]});
    }
  }
  return rows;
}

std::string schedule_svg(const Schedule& schedule, const UnitCosts& costs) {
  const auto simulation = simulate(schedule, kUnboundedSends,
                                   [&](int, const Instruction& instruction) { return cost_of(costs, instruction.op); });
  SL_ASSERT(simulation.finished(schedule), "the schedule was not checked");
  std::ostringstream title;
  title << schedule.name << ": " << schedule.stages << " stages, " << schedule.microbatches << " microbatches, bubble "
        << std::fixed << std::setprecision(1) << 100 * bubble_fraction(schedule, costs) << " %";
  return interval_picture(title.str(), simulated_rows(schedule, simulation), simulation.makespan());
}

}  // namespace shardline
