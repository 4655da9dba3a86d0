#include "engine/page/heat_map.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/error.h"
#include "core/number_text.h"
#include "engine/page/html_page.h"
#include "engine/page/svg_text.h"

namespace shardline {
namespace {

constexpr double kMapWidth = 420, kMapTop = 30, kMostCell = 52, kLabelFont = 12, kCellFont = 11;

}  // namespace

std::string heat_map_svg(const std::string& title, const std::vector<std::string>& names,
                         const std::vector<std::vector<std::optional<double>>>& cells) {
  double label = 0;
  for (const auto& name : names) label = std::max(label, svg_width(name, kLabelFont));
  label += 10;
  const double cell = std::min(kMostCell, (kMapWidth - label - 6) / std::max<size_t>(1, names.size()));
  const double bottom = kMapTop + cell * names.size();
  std::ostringstream out;
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << kMapWidth << ' ' << svg_number(bottom + label)
      << "\" font-family=\"system-ui, sans-serif\" font-size=\"" << kLabelFont << "\" role=\"img\" aria-label=\""
      << html_escaped(title) << "\">\n";
  svg_text(out, 4, 17, title, "font-size=\"14\" font-weight=\"600\" style=\"fill:var(--ink)\"");
  for (size_t i = 0; i < names.size(); ++i) {
    const double y = kMapTop + cell * i, middle = label + cell * (i + 0.5);
    svg_text(out, label - 6, y + cell / 2 + 4, names[i], "text-anchor=\"end\" style=\"fill:var(--muted)\"");
    out << "<g transform=\"rotate(-90 " << svg_number(middle) << ' ' << svg_number(bottom + 6) << ")\">";
    svg_text(out, middle, bottom + 10, names[i], "text-anchor=\"end\" style=\"fill:var(--muted)\"");
    out << "</g>\n";
    for (size_t j = 0; j < names.size(); ++j) {
      if (!cells[i][j]) continue;
      const double value = *cells[i][j], x = label + cell * j;
      out << "<rect x=\"" << svg_number(x + 1) << "\" y=\"" << svg_number(y + 1) << "\" width=\""
          << svg_number(cell - 2) << "\" height=\"" << svg_number(cell - 2) << "\" style=\"fill:rgba(var(--"
          << (value < 0 ? "negative" : "positive") << ")," << svg_number(8 + 62 * std::abs(value)) << "%)\">"
          << "<title>" << html_escaped(names[i]) << " and " << html_escaped(names[j]) << ": "
          << format_decimals(value, 3) << "</title></rect>\n";
      if (cell < svg_width("-0.00", kCellFont) + 2) continue;  // there is no room for the number
      svg_text(out, x + cell / 2, y + cell / 2 + 4, format_decimals(value, 2),
               cat("text-anchor=\"middle\" font-size=\"", kCellFont, "\" style=\"fill:var(--ink)\""));
    }
  }
  out << "</svg>\n";
  return out.str();
}

}  // namespace shardline
