#include "pipeline/schedule/pictures/schedule_grid.h"

#include <algorithm>

#include "core/error.h"
#include "pipeline/schedule/schedule_simulation.h"

namespace shardline {

double cost_of(const UnitCosts& costs, Op op) {
  switch (op) {
    case Op::forward:
      return costs.forward;
    case Op::backward_input:
      return costs.backward_input;
    case Op::backward_weight:
      return costs.backward_weight;
    default:
      return 0;
  }
}

namespace {

Simulation run(const Schedule& schedule, const UnitCosts& costs) {
  auto simulation = simulate(schedule, kUnboundedSends,
                             [&](int, const Instruction& instruction) { return cost_of(costs, instruction.op); });
  SL_ASSERT(simulation.finished(schedule), "the schedule was not checked");
  return simulation;
}

std::string cell(const Schedule& schedule, const Instruction& instruction) {
  const char letter = instruction.op == Op::forward ? 'F' : instruction.op == Op::backward_input ? 'B' : 'W';
  auto text = cat(letter, instruction.microbatch);
  return schedule.chunks() == schedule.stages ? text : cat(text, '/', instruction.chunk);
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

using Row = std::vector<std::string>;

// By stage: the cell for each unit of time.
std::vector<Row> cells(const Schedule& schedule) {
  const UnitCosts one;
  const auto simulation = run(schedule, one);
  std::vector<Row> rows(schedule.instructions.size(), Row(simulation.makespan(), "."));
  for (size_t stage = 0; stage < rows.size(); ++stage)
    for (size_t index = 0; index < schedule.instructions[stage].size(); ++index) {
      const auto& instruction = schedule.instructions[stage][index];
      const size_t unit = simulation.intervals[stage][index].start;
      if (cost_of(one, instruction.op) > 0) rows[stage][unit] = cell(schedule, instruction);
    }
  return rows;
}

}  // namespace

std::string text_grid(const Schedule& schedule, int width) {
  auto rows = cells(schedule);
  const size_t units = rows.front().size();
  size_t cell_width = 0;
  for (const auto& row : rows)
    for (const auto& text : row) cell_width = std::max(cell_width, text.size() + 1);
  const size_t label_width = cat("stage ", schedule.stages - 1, "  ").size();

  const size_t room = std::max<size_t>(std::max(width, 0), label_width + 3 * cell_width);
  const size_t fits = (room - label_width) / cell_width;
  const bool elided = fits < units;
  const size_t head = elided ? fits / 2 : units;    // units before the gap, whose mark takes one cell
  const size_t tail = elided ? (fits - 1) / 2 : 0;  // units after the gap

  std::string grid;
  for (size_t stage = 0; stage < rows.size(); ++stage) {
    std::string line = padded(cat("stage ", stage), label_width);
    for (size_t unit = 0; unit < head; ++unit) line += padded(rows[stage][unit], cell_width);
    if (elided) line += padded("~", cell_width);
    for (size_t unit = units - tail; unit < units; ++unit) line += padded(rows[stage][unit], cell_width);
    line.erase(line.find_last_not_of(' ') + 1);
    grid += line + '\n';
  }
  if (elided) grid += cat("~: units ", head, " to ", units - tail - 1, " of 0 to ", units - 1, " are left out\n");
  return grid;
}

double bubble_fraction(const Schedule& schedule, const UnitCosts& costs) {
  const auto simulation = run(schedule, costs);
  double busy = 0;
  for (const auto& stage : simulation.intervals)
    for (const auto& interval : stage) busy += interval.end - interval.start;
  return 1 - busy / (schedule.stages * simulation.makespan());
}

}  // namespace shardline
