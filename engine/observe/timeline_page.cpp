#include "engine/observe/timeline_page.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <tuple>

#include "core/error.h"
#include "engine/observe/format.h"
#include "pipeline/schedule/pictures/schedule_svg.h"

namespace shardline {
namespace {

// Means over microbatches and over the ranks of a stage.
class MeanCosts {
 public:
  MeanCosts(const Mesh& mesh, const std::vector<RankTimeline>& ranks) {
    for (const auto& rank : ranks)
      for (const auto& record : rank.instructions) {
        auto& [sum, count] = sums_[{mesh.at(rank.rank).p, record.instruction.op, record.instruction.chunk}];
        sum += record.end - record.start - record.waited;
        ++count;
      }
  }
  double operator()(int stage, const Instruction& instruction) const {
    const auto found = sums_.find({stage, instruction.op, instruction.chunk});
    return found == sums_.end() ? 0 : found->second.first / found->second.second;
  }

 private:
  std::map<std::tuple<int, Op, int>, std::pair<double, int>> sums_;
};

Simulation predicted(const Mesh& mesh, const Schedule& schedule, const std::vector<RankTimeline>& ranks) {
  return simulate(schedule, kUnboundedSends, MeanCosts(mesh, ranks));
}

double idle_share(const std::vector<PictureRow>& rows, double span) {
  double busy = 0;
  for (const auto& row : rows)
    for (const auto& box : row.boxes) busy += box.end - box.start;
  return 1 - busy / (span * rows.size());
}

std::vector<PictureRow> measured_rows(const Mesh& mesh, const std::vector<RankTimeline>& ranks, double zero) {
  std::vector<PictureRow> rows;
  for (const auto& rank : ranks) {
    const Coordinates coordinates = mesh.at(rank.rank);
    auto& row = rows.emplace_back(PictureRow{
        cat("rank ", rank.rank, " (d ", coordinates.d, " p ", coordinates.p, " t ", coordinates.t, ")"), {}});
    for (const auto& record : rank.instructions) {
      if (!computes(record.instruction.op)) continue;
      const double seconds = record.end - record.start - record.waited;
      row.boxes.push_back({record.end - seconds - zero, record.end - zero, record.instruction,
                           cat(to_string(record.instruction), ": ", format_duration(seconds))});
    }
  }
  return rows;
}

std::vector<CurveRow> activation_curves(const std::vector<RankTimeline>& ranks, double zero) {
  std::vector<CurveRow> rows;
  for (const auto& rank : ranks) {
    int64_t most = 0;
    CurveRow row;
    for (const auto& record : rank.instructions) {
      row.steps.emplace_back(record.end - zero, record.activation_bytes);
      most = std::max(most, record.activation_bytes);
    }
    row.label = cat("rank ", rank.rank, ": at most ", format_bytes(most));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string percent_of(double share) {
  std::ostringstream text;
  text.precision(3);
  text << 100 * share << " %";
  return text.str();
}

}  // namespace

double predicted_seconds(const Mesh& mesh, const Schedule& schedule, const std::vector<RankTimeline>& ranks) {
  return predicted(mesh, schedule, ranks).makespan();
}

std::string timeline_page(const Mesh& mesh, const Schedule& schedule, int64_t step,
                          const std::vector<RankTimeline>& ranks) {
  double zero = ranks.front().start, end = ranks.front().end;
  for (const auto& rank : ranks) {
    zero = std::min(zero, rank.start);
    end = std::max(end, rank.end);
  }
  const auto measured = measured_rows(mesh, ranks, zero);
  const auto simulation = predicted(mesh, schedule, ranks);
  const auto simulated = simulated_rows(schedule, simulation);
  const double span = std::max(end - zero, simulation.makespan());
  std::ostringstream page;
  page << "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>shardline: step " << step
       << "</title>\n<body style=\"font-family: sans-serif; margin: 1em\">\n<h1>Step " << step << ", " << schedule.name
       << "</h1>\n<p>" << mesh.d() << " x " << mesh.p() << " x " << mesh.t() << " ranks (D x P x T), "
       << schedule.microbatches << " microbatches. The step took " << format_duration(end - zero)
       << " from the first rank's start to the optimizer's end; the simulation of forward and backward at the measured "
          "costs takes "
       << format_duration(simulation.makespan())
       << ". Hover over a box to see its instruction and time. If a weight gradient immediately follows its input "
          "gradient, both are computed in one pass and shown as one box.</p>\n"
       << interval_picture(cat("measured, idle ", percent_of(idle_fraction(ranks))), measured, span)
       << interval_picture(cat("predicted, idle ", percent_of(idle_share(simulated, simulation.makespan()))), simulated,
                           span)
       << curve_picture("bytes of activations that are kept, after each instruction", activation_curves(ranks, zero),
                        span)
       << "</body>\n</html>\n";
  return page.str();
}

}  // namespace shardline
