#include "engine/page/svg_text.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string_view>

#include "core/number_text.h"
#include "engine/page/html_page.h"

namespace shardline {
namespace {

// Widths as shares of the font's size, rounded up from DejaVu Sans, one of the widest fonts; 0 for all bytes of a
// character but the first.
double width_of(char c) {
  constexpr std::string_view kNarrow = "fijlrtI.,:;!|'()[]/ -", kWide = "mwMW%@";
  if ((c & 0xc0) == 0x80) return 0;
  if (kNarrow.find(c) != std::string_view::npos) return 0.42;
  if (kWide.find(c) != std::string_view::npos) return 0.99;
  return (c >= 'A' && c <= 'Z') || (c & 0x80) || std::string_view("+=<>~&").find(c) != std::string_view::npos ? 0.84
                                                                                                              : 0.64;
}

}  // namespace

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
  double width = 0;
  for (const char c : text) width += width_of(c) * font_size;
  return width;
}

std::vector<std::string> svg_lines(const std::string& text, double font_size, double width) {
  constexpr std::string_view kEnds = " ,;-_/";
  std::vector<std::string> lines = {""};
  size_t good_break = 0;  // in the last line: how many of its bytes may stay if the next character does not fit
  double used = 0;
  for (const char c : text) {
    const double more = width_of(c) * font_size;
    if (more > 0 && used + more > width && !lines.back().empty()) {
      const size_t kept = good_break > 0 ? good_break : lines.back().size();
      std::string rest = lines.back().substr(kept);
      lines.back().resize(kept);
      lines.push_back(std::move(rest));
      used = svg_width(lines.back(), font_size);
      good_break = 0;
    }
    lines.back() += c;
    used += more;
    if (kEnds.find(c) != std::string_view::npos) good_break = lines.back().size();
  }
  return lines;
}

std::string tick_text(double value) {
  if (std::abs(value) >= 10'000) return format_count(value);
  std::ostringstream text;
  text.precision(4);
  text << (std::abs(value) < 1e-12 ? 0 : value);
  return text.str();
}

}  // namespace shardline
