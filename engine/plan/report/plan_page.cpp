#include "engine/plan/report/plan_page.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "core/error.h"
#include "engine/observe/format.h"
#include "engine/plan/report/candidates_report.h"
#include "engine/plan/tensor_splits.h"

namespace shardline {
namespace {

constexpr size_t kMostBars = 64;
constexpr double kBarWidth = 900, kBarLeft = 190, kRow = 24, kTop = 44;

// The classes of memory take these colours in turn.
constexpr std::array kColours = {"#7aa2e0", "#7ac896", "#f0b860", "#c39bd3", "#9aa5b1", "#d8a48f"};

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return result;
}

std::string pre(const std::string& text) {
  return "<pre style=\"overflow-x: auto; font-size: 12px\">" + escaped(text) + "</pre>\n";
}

// All ranks; if there are many, the one with the most memory on each stage.
std::vector<size_t> shown_ranks(const Forecast& forecast, const Plan& plan) {
  std::vector<size_t> ranks;
  if (forecast.memory.size() <= kMostBars) {
    for (size_t rank = 0; rank < forecast.memory.size(); ++rank) ranks.push_back(rank);
    return ranks;
  }
  const Mesh mesh = plan.layout.mesh();
  ranks.resize(mesh.p(), forecast.memory.size());
  for (size_t rank = 0; rank < forecast.memory.size(); ++rank) {
    auto& most = ranks[mesh.at(rank).p];
    if (most == forecast.memory.size() || forecast.memory[rank].total() > forecast.memory[most].total()) most = rank;
  }
  return ranks;
}

std::string memory_bars(const Forecast& forecast, const Plan& plan) {
  const auto ranks = shown_ranks(forecast, plan);
  double widest = forecast.cluster.memory_bytes;
  for (const size_t rank : ranks) widest = std::max(widest, forecast.memory[rank].total());
  const double scale = kBarWidth / widest, height = kTop + kRow * ranks.size();
  std::ostringstream out;
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1370 " << height + 24
      << "\" font-family=\"sans-serif\" font-size=\"11\">\n";
  const Mesh mesh = plan.layout.mesh();
  double x = kBarLeft;
  for (size_t i = 0; i < std::size(kPlannedClasses); ++i) {
    out << "<rect x=\"" << x << "\" y=\"8\" width=\"14\" height=\"14\" fill=\"" << kColours[i % kColours.size()]
        << "\"/><text x=\"" << x + 19 << "\" y=\"19\">" << kPlannedClasses[i].name << "</text>\n";
    x += 125;
  }
  for (size_t row = 0; row < ranks.size(); ++row) {
    const auto& bytes = forecast.memory[ranks[row]];
    const Coordinates at = mesh.at(ranks[row]);
    const double y = kTop + kRow * row;
    out << "<text x=\"8\" y=\"" << y + 14 << "\">rank " << ranks[row] << " (stage " << at.p << ", d " << at.d << ", t "
        << at.t << ")</text>\n";
    x = kBarLeft;
    for (size_t i = 0; i < std::size(kPlannedClasses); ++i) {
      const double width = scale * bytes.*kPlannedClasses[i].bytes;
      out << "<rect x=\"" << x << "\" y=\"" << y << "\" width=\"" << width << "\" height=\"" << kRow - 5 << "\" fill=\""
          << kColours[i % kColours.size()] << "\"><title>" << kPlannedClasses[i].name << ": "
          << format_bytes(bytes.*kPlannedClasses[i].bytes) << "</title></rect>\n";
      x += width;
    }
    out << "<text x=\"" << kBarLeft + kBarWidth + 12 << "\" y=\"" << y + 14 << "\""
        << (forecast.fits(ranks[row]) ? "" : " fill=\"#c0392b\" font-weight=\"bold\"") << ">"
        << format_bytes(bytes.total()) << (forecast.fits(ranks[row]) ? "" : ": too much") << "</text>\n";
  }
  const double limit = kBarLeft + scale * forecast.cluster.memory_bytes;
  out << "<line x1=\"" << limit << "\" x2=\"" << limit << "\" y1=\"" << kTop - 8 << "\" y2=\"" << height
      << "\" stroke=\"#c0392b\" stroke-width=\"1.5\"/><text x=\"" << limit << "\" y=\"" << height + 14
      << "\" text-anchor=\"end\" fill=\"#c0392b\">" << format_bytes(forecast.cluster.memory_bytes)
      << " of a device</text>\n</svg>\n";
  return out.str();
}

}  // namespace

std::string plan_page(const Machines& machines, const Plan& plan, const Forecast& forecast,
                      const std::optional<Candidates>& candidates) {
  std::ostringstream page;
  page << "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>shardline: plan</title>\n"
       << "<body style=\"font-family: sans-serif; margin: 1em\">\n<h1>Plan for " << forecast.cluster.nodes << " x "
       << escaped(forecast.cluster.name) << "</h1>\n<p>" << escaped(to_string(plan.layout)) << "</p>\n"
       << pre(forecast_text(forecast, plan)) << "<h2>Memory</h2>\n"
       << memory_bars(forecast, plan) << "<h2>Step</h2>\n"
       << forecast_picture(machines, plan);
  if (const auto units = units_of(plan); !units.empty())
    page << "<h2>Tensor parallelism</h2>\n" << pre(splits_text(units));
  if (candidates) page << "<h2>Candidates</h2>\n" << pre(candidates_text(*candidates, plan.layout, forecast));
  page << "</body>\n</html>\n";
  return page.str();
}

}  // namespace shardline
