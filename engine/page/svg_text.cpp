#include "engine/page/svg_text.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/number_text.h"
#include "engine/page/html_page.h"

namespace shardline {

std::string svg_number(double value) {
  std::ostringstream text;
  text << std::round(value * 10) / 10;
  return text.str();
}

void svg_text(std::ostream& out, double x, double y, const std::string& text, const std::string& attributes) {
  out << "<text x=\"" << svg_number(x) << "\" y=\"" << svg_number(y) << "\" " << attributes << ">" << html_escaped(text)
      << "</text>\n";
}

double svg_width(const std::string& text, double font_size) {
  constexpr double kShare = 0.56;  // average width of a character relative to its height, in the fonts of most systems
  const double letters = std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
  return kShare * font_size * letters;
}

std::string tick_text(double value) {
  if (std::abs(value) >= 10'000) return format_count(value);
  std::ostringstream text;
  text.precision(4);
  text << (std::abs(value) < 1e-12 ? 0 : value);
  return text.str();
}

}  // namespace shardline
