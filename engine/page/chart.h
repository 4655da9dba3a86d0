// Charts as SVG elements of an HtmlPage, whose colours they take.
#pragma once
#include <string>
#include <vector>

namespace shardline {

struct ChartPoint {
  double x = 0, y = 0;
  double low = 0, high = 0;  // an interval around y, drawn if they differ
  std::string tip = "";      // shown when the pointer is on the mark
};

struct ChartSeries {
  enum class Style { line, marks, line_with_marks, band };  // band: the area between low and high
  std::string name;
  Style style = Style::line;
  size_t colour = 0;  // one of eight
  bool dashed = false;
  std::vector<ChartPoint> points;  // by ascending x, unless they are marks
};

struct Chart {
  std::string title, x_label, y_label;
  bool log_x = false;  // for positive x
  // If all values are >= 0, intervals are cut at 0 and well above the largest value.
  bool y_from_zero = false;
  std::vector<ChartSeries> series;  // from the back to the front

  bool empty() const;  // nothing finite to draw
};

// Points that are not finite, or beyond 1e100, are left out; long lines are thinned such that their extremes stay.
std::string chart_svg(const Chart& chart);

}  // namespace shardline
