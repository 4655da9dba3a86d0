#include "pipeline/schedule_svg.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/error.h"
#include "pipeline/schedule_simulation.h"

namespace shardline {
namespace {

constexpr double kWidth = 1200, kRow = 28, kLeft = 70, kTop = 56, kLetter = 6.5;

struct Colour {
  const char* name;
  int red, green, blue;
};
constexpr Colour kColours[] = {
    {"forward", 130, 170, 232}, {"input gradient", 122, 200, 150}, {"weight gradient", 240, 184, 96}};

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return result;
}

// To tenths, without a trailing ".0".
std::string number(double value) {
  std::ostringstream text;
  text << std::round(value * 10) / 10;
  return text.str();
}

// The stage's later chunks are darker.
std::string fill(const Schedule& schedule, Op op, int chunk) {
  const auto& colour = kColours[static_cast<size_t>(op)];
  const auto begin = schedule.stage_of_chunk.begin();
  const int stage = begin[chunk];
  const auto before = static_cast<double>(std::count(begin, begin + chunk, stage));
  const double shade = 1 - 0.35 * before / std::max(1.0, static_cast<double>(schedule.chunks()) / schedule.stages);
  const auto part = [&](int value) { return static_cast<int>(value * shade); };
  return cat("rgb(", part(colour.red), ",", part(colour.green), ",", part(colour.blue), ")");
}

void text(std::ostream& out, double x, double y, const std::string& what, const char* more = "") {
  out << "<text x=\"" << number(x) << "\" y=\"" << number(y) << "\"" << more << ">" << escaped(what) << "</text>\n";
}

void box(std::ostream& out, double x, double y, double width, double height, const std::string& colour) {
  out << "<rect x=\"" << number(x) << "\" y=\"" << number(y) << "\" width=\"" << number(width) << "\" height=\""
      << number(height) << "\" fill=\"" << colour << "\" stroke=\"white\" stroke-width=\"0.5\"/>\n";
}

void legend(std::ostream& out, const Schedule& schedule, double y) {
  double x = kLeft;
  for (const Op op : {Op::forward, Op::backward_input, Op::backward_weight}) {
    box(out, x, y - 11, 14, 14, fill(schedule, op, 0));
    text(out, x + 20, y, kColours[static_cast<size_t>(op)].name);
    x += 150;
  }
  if (schedule.chunks() > schedule.stages) text(out, x, y, "darker: later chunks of the stage");
}

}  // namespace

std::string schedule_svg(const Schedule& schedule, const UnitCosts& costs) {
  const auto simulation = simulate(schedule, kUnboundedSends,
                                   [&](int, const Instruction& instruction) { return cost_of(costs, instruction.op); });
  SL_ASSERT(simulation.finished(schedule), "the schedule was not checked");
  const double scale = kWidth / simulation.makespan();
  const double height = kTop + kRow * schedule.stages + 40;
  std::ostringstream out;
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << number(kLeft + kWidth + 20) << " "
      << number(height) << "\" font-family=\"sans-serif\" font-size=\"11\">\n"
      << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  text(out, kLeft, 24,
       cat(schedule.name, ": ", schedule.stages, " stages, ", schedule.microbatches, " microbatches, bubble ",
           number(100 * bubble_fraction(schedule, costs)), " %"),
       " font-size=\"15\"");
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const double y = kTop + kRow * stage;
    text(out, 8, y + kRow / 2 + 4, cat("stage ", stage));
    const auto& list = schedule.instructions[static_cast<size_t>(stage)];
    for (size_t i = 0; i < list.size(); ++i) {
      if (cost_of(costs, list[i].op) <= 0) continue;
      const auto [start, end] = simulation.intervals[static_cast<size_t>(stage)][i];
      const double x = kLeft + scale * start, width = scale * (end - start);
      box(out, x, y, width, kRow - 3, fill(schedule, list[i].op, list[i].chunk));
      const auto label = std::to_string(list[i].microbatch);
      if (width > kLetter * static_cast<double>(label.size()) + 2)
        text(out, x + width / 2, y + kRow / 2 + 3, label, " text-anchor=\"middle\"");
    }
  }
  legend(out, schedule, height - 14);
  out << "</svg>\n";
  return out.str();
}

}  // namespace shardline
