#include "engine/page/bars.h"

#include <algorithm>
#include <numeric>
#include <sstream>

#include "engine/page/html_page.h"
#include "engine/page/svg_text.h"

namespace shardline {
namespace {

constexpr double kBarsWidth = 420, kBarsRow = 22, kFontSize = 12, kLegendLine = 20, kFirstLine = 28;

double total_of(const BarRow& row) {
  return std::accumulate(row.parts.begin(), row.parts.end(), 0.0);
}

}  // namespace

std::string bars_svg(const Bars& bars) {
  double most = 0, label_width = 0, value_width = 0;
  for (const auto& row : bars.rows) {
    most = std::max(most, total_of(row));
    label_width = std::max(label_width, svg_width(row.label, kFontSize));
    value_width = std::max(value_width, svg_width(bars.format(total_of(row)), kFontSize));
  }
  const double left = label_width + 14, right = kBarsWidth - value_width - 12;
  const double scale = most > 0 ? (right - left) / most : 0;
  std::ostringstream legend, rows;
  double x = 4, y = kFirstLine;
  for (size_t i = 0; i < bars.parts.size(); ++i) {
    const double width = 18 + svg_width(bars.parts[i], kFontSize) + 14;
    if (x > 4 && x + width > kBarsWidth) {
      x = 4;
      y += kLegendLine;
    }
    legend << "<rect x=\"" << svg_number(x) << "\" y=\"" << svg_number(y + 1)
           << "\" width=\"12\" height=\"12\" style=\"fill:var(--c" << i % 8 << ")\"/>";
    svg_text(legend, x + 17, y + 12, bars.parts[i], "style=\"fill:var(--ink)\"");
    x += width;
  }
  y += kLegendLine + 6;
  for (const auto& row : bars.rows) {
    svg_text(rows, left - 6, y + 15, row.label, "text-anchor=\"end\" style=\"fill:var(--muted)\"");
    double begin = left;
    for (size_t i = 0; i < row.parts.size(); ++i) {
      const double width = scale * row.parts[i];
      if (width <= 0) continue;
      rows << "<rect x=\"" << svg_number(begin) << "\" y=\"" << svg_number(y + 3) << "\" width=\"" << svg_number(width)
           << "\" height=\"" << kBarsRow - 6 << "\" style=\"fill:var(--c" << i % 8 << ")\"><title>"
           << html_escaped(bars.parts[i]) << ": " << html_escaped(bars.format(row.parts[i])) << "</title></rect>\n";
      begin += width;
    }
    svg_text(rows, begin + 6, y + 15, bars.format(total_of(row)), "style=\"fill:var(--ink)\"");
    y += kBarsRow;
  }
  std::ostringstream out;
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << kBarsWidth << ' ' << svg_number(y + 8)
      << "\" font-family=\"system-ui, sans-serif\" font-size=\"" << kFontSize << "\" role=\"img\" aria-label=\""
      << html_escaped(bars.title) << "\">\n";
  svg_text(out, 4, 17, bars.title, "font-size=\"14\" font-weight=\"600\" style=\"fill:var(--ink)\"");
  out << legend.str() << rows.str() << "</svg>\n";
  return out.str();
}

}  // namespace shardline
