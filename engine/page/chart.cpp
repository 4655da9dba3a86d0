#include "engine/page/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <sstream>

#include "engine/page/html_page.h"
#include "engine/page/svg_text.h"

namespace shardline {
namespace {

constexpr double kWidth = 420, kLabel = 24, kRight = 14, kPlotHeight = 220, kBottom = 48, kTitle = 26, kLegendRow = 20;
constexpr double kSmall = 12, kMark = 4, kTextLine = 15, kLegendMark = 26;
constexpr size_t kColours = 8;
constexpr double kMost = 1e100;
constexpr double kMostAboveValues = 1.5;  // times the largest value, intervals of positive values are cut
constexpr size_t kMostPoints = 800, kMostNamedTicks = 8;

bool is_drawable(const ChartPoint& point, bool log_x) {
  return std::abs(point.x) < kMost && std::abs(point.y) < kMost && (!log_x || point.x > 0);  // false for NaN
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  double width() const { return high - low; }
};

// 1, 2 or 5 times a power of ten, so that about `count` of them fill the width.
double nice_step(double width, int count) {
  const double rough = width / count, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power) return factor * power;
  return 10 * power;
}

std::vector<double> even_ticks(const Range& range) {
  const double step = nice_step(range.width(), 5);
  std::vector<double> ticks;
  for (double i = std::ceil(range.low / step - 1e-9); i * step <= range.high + 1e-9 * step; ++i)
    ticks.push_back(i * step);
  return ticks;
}

class Plot {
 public:
  explicit Plot(const Chart& chart) : chart_(chart) {
    for (const auto& series : chart.series)
      for (const auto& point : series.points) {
        if (!is_drawable(point, chart.log_x)) continue;
        x_.add(of_x(point.x));
        y_.add(point.y);
        named_.insert(point.x);
      }
    if (chart.y_from_zero) y_.add(0);
    const bool is_positive = chart.y_from_zero && y_.low >= 0;
    add_intervals(is_positive ? kMostAboveValues * y_.high : kMost);
    widen(x_, 0.03);
    widen(y_, 0.06);
    if (is_positive) y_.low = 0;
    for (const double tick : even_ticks(y_)) left_ = std::max(left_, kLabel + svg_width(tick_text(tick), kSmall) + 8);
    place_legend();
  }

  std::string svg() {
    const double height = top_ + kPlotHeight + kBottom;
    out_ << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << kWidth << ' ' << svg_number(height)
         << "\" font-family=\"system-ui, sans-serif\" font-size=\"" << kSmall << "\" role=\"img\" aria-label=\""
         << html_escaped(chart_.title) << "\">\n";
    svg_text(out_, 4, 17, chart_.title, "font-size=\"14\" font-weight=\"600\" style=\"fill:var(--ink)\"");
    draw_axes();
    for (const auto& series : chart_.series) draw(series);
    draw_legend();
    out_ << "</svg>\n";
    return out_.str();
  }

 private:
  static bool has_interval(const ChartPoint& point) {
    return point.low != point.high && std::abs(point.low) < kMost && std::abs(point.high) < kMost;
  }
  // Intervals of a few repeats may be much wider than the range of the values. They must not determine the axis of
  // values that cannot be negative, where intervals are cut at 0 and at `most`.
  void add_intervals(double most) {
    const Range values = y_;
    for (const auto& series : chart_.series)
      for (const auto& point : series.points) {
        if (!is_drawable(point, chart_.log_x) || !has_interval(point)) continue;
        y_.add(most < kMost ? std::max(point.low, values.low) : point.low);
        y_.add(std::min(point.high, most));
      }
  }
  static std::string colour(size_t index) { return "var(--c" + std::to_string(index % kColours) + ")"; }
  static void widen(Range& range, double share) {
    constexpr double kLeastShare = 1e-9;  // relative to the values, so that ticks differ
    const double values = std::max(std::abs(range.low), std::abs(range.high));
    const double size = range.width() > kLeastShare * values ? range.width() : values > 0 ? values : 1;
    range.low -= share * size;
    range.high += share * size;
  }

  double of_x(double x) const { return chart_.log_x ? std::log2(x) : x; }
  double at_x(double x) const { return left_ + (of_x(x) - x_.low) / x_.width() * (kWidth - left_ - kRight); }
  double at_y(double y) const { return top_ + (y_.high - y) / y_.width() * kPlotHeight; }

  // Entries share a row if they fit; a long one has several lines.
  void place_legend() {
    double x = left_, y = kTitle, height = 0;
    for (const auto& series : chart_.series) {
      if (series.name.empty()) continue;
      LegendEntry entry{&series, 0, 0, svg_lines(series.name, kSmall, kWidth - left_ - kLegendMark - 4)};
      const double width = kLegendMark + svg_width(series.name, kSmall);
      if (x > left_ && x + width > kWidth) {
        x = left_;
        y += height;
        height = 0;
      }
      height = std::max(height, kLegendRow + kTextLine * (entry.lines.size() - 1));
      entry.x = x;
      entry.y = y;
      legend_.push_back(std::move(entry));
      x += width + 14;
    }
    top_ = y + height + 4;
  }

  void draw_axes() {
    const double bottom = top_ + kPlotHeight, right = kWidth - kRight;
    for (const double tick : even_ticks(y_)) {
      line(left_, at_y(tick), right, at_y(tick), "var(--grid)");
      svg_text(out_, left_ - 6, at_y(tick) + 4, tick_text(tick), "text-anchor=\"end\" style=\"fill:var(--muted)\"");
    }
    const bool by_name = named_.size() == 1 || (chart_.log_x && named_.size() <= kMostNamedTicks);
    double last = -kWidth;
    for (const double tick : by_name ? std::vector<double>(named_.begin(), named_.end()) : x_ticks()) {
      const std::string text = tick_text(tick);
      line(at_x(tick), bottom, at_x(tick), bottom + 4, "var(--line)");
      const double half = svg_width(text, kSmall) / 2 + 3, middle = std::min(at_x(tick), kWidth - half);
      if (middle - half < last) continue;
      last = middle + half;
      svg_text(out_, middle, bottom + 18, text, "text-anchor=\"middle\" style=\"fill:var(--muted)\"");
    }
    line(left_, bottom, right, bottom, "var(--line)");
    svg_text(out_, (left_ + right) / 2, bottom + 37, chart_.x_label,
             "text-anchor=\"middle\" style=\"fill:var(--muted)\"");
    const double middle = top_ + kPlotHeight / 2;
    out_ << "<g transform=\"rotate(-90 14 " << svg_number(middle) << ")\">";
    svg_text(out_, 14, middle, chart_.y_label, "text-anchor=\"middle\" style=\"fill:var(--muted)\"");
    out_ << "</g>\n";
  }

  std::vector<double> x_ticks() const {
    if (!chart_.log_x) return even_ticks(x_);
    std::vector<double> ticks;
    for (double power = std::ceil(x_.low); power <= x_.high; ++power) ticks.push_back(std::exp2(power));
    return ticks;
  }

  void draw(const ChartSeries& series) {
    std::vector<ChartPoint> points;
    for (const auto& point : series.points)
      if (is_drawable(point, chart_.log_x)) points.push_back(point);
    if (points.empty()) return;
    const std::string paint = colour(series.colour);
    if (series.style == ChartSeries::Style::band) return draw_band(points, paint);
    if (series.style != ChartSeries::Style::marks) draw_line(thinned(points), paint, series.dashed);
    if (series.style == ChartSeries::Style::line && points.size() > 1) return;
    for (const auto& point : points) draw_mark(point, paint);
  }

  void draw_band(const std::vector<ChartPoint>& points, const std::string& paint) {
    out_ << "<path style=\"fill:" << paint << ";opacity:.18\" d=\"M";
    for (const auto& point : points) out_ << svg_number(at_x(point.x)) << ' ' << svg_number(at_y(point.high)) << ' ';
    for (size_t i = points.size(); i-- > 0;)
      out_ << svg_number(at_x(points[i].x)) << ' ' << svg_number(at_y(points[i].low)) << ' ';
    out_ << "Z\"/>\n";
  }

  void draw_line(const std::vector<ChartPoint>& points, const std::string& paint, bool dashed) {
    out_ << "<polyline fill=\"none\" stroke-width=\"1.8\" stroke-linejoin=\"round\" style=\"stroke:" << paint << "\""
         << (dashed ? " stroke-dasharray=\"6 4\"" : "") << " points=\"";
    for (const auto& point : points) out_ << svg_number(at_x(point.x)) << ',' << svg_number(at_y(point.y)) << ' ';
    out_ << "\"/>\n";
  }

  void draw_mark(const ChartPoint& point, const std::string& paint) {
    const double x = at_x(point.x);
    if (has_interval(point))
      line(x, at_y(std::max(point.low, y_.low)), x, at_y(std::min(point.high, y_.high)), paint, 1.6);
    out_ << "<circle cx=\"" << svg_number(x) << "\" cy=\"" << svg_number(at_y(point.y)) << "\" r=\"" << kMark
         << "\" style=\"fill:" << paint << "\"><title>" << html_escaped(point.tip.empty() ? tip(point) : point.tip)
         << "</title></circle>\n";
  }
  std::string tip(const ChartPoint& point) const { return tick_text(point.x) + ": " + tick_text(point.y); }

  // Keeps the first, the smallest and the largest value of each of many parts.
  static std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points) {
    if (points.size() <= kMostPoints) return points;
    const size_t parts = kMostPoints / 3;
    std::vector<ChartPoint> kept;
    for (size_t part = 0; part < parts; ++part) {
      const size_t begin = points.size() * part / parts, end = points.size() * (part + 1) / parts;
      const auto less = [&](size_t a, size_t b) { return points[a].y < points[b].y; };
      size_t least = begin, most = begin;
      for (size_t i = begin; i < end; ++i) {
        if (less(i, least)) least = i;
        if (less(most, i)) most = i;
      }
      for (const size_t i : std::set<size_t>{begin, least, most}) kept.push_back(points[i]);
    }
    if (kept.back().x != points.back().x) kept.push_back(points.back());
    return kept;
  }

  // Whether a series with a line has no line to draw.
  bool is_one_mark(const ChartSeries& series) const {
    const auto drawn =
        std::ranges::count_if(series.points, [&](const ChartPoint& p) { return is_drawable(p, chart_.log_x); });
    return series.style != ChartSeries::Style::band && drawn == 1;
  }

  void draw_legend() {
    for (const auto& [series, x, y, lines] : legend_) {
      const std::string paint = colour(series->colour);
      if (series->style == ChartSeries::Style::marks || is_one_mark(*series))
        out_ << "<circle cx=\"" << svg_number(x + 10) << "\" cy=\"" << svg_number(y + 9) << "\" r=\"" << kMark
             << "\" style=\"fill:" << paint << "\"/>\n";
      else
        line(x, y + 9, x + 20, y + 9, paint, series->style == ChartSeries::Style::band ? 9 : 2, series->dashed,
             series->style == ChartSeries::Style::band ? 0.25 : 1);
      for (size_t i = 0; i < lines.size(); ++i)
        svg_text(out_, x + kLegendMark, y + 13 + kTextLine * i, lines[i], "style=\"fill:var(--ink)\"");
    }
  }

  void line(double x1, double y1, double x2, double y2, const std::string& paint, double width = 1, bool dashed = false,
            double opacity = 1) {
    out_ << "<line x1=\"" << svg_number(x1) << "\" y1=\"" << svg_number(y1) << "\" x2=\"" << svg_number(x2)
         << "\" y2=\"" << svg_number(y2) << "\" style=\"stroke:" << paint << ";stroke-width:" << width
         << ";opacity:" << opacity << "\"" << (dashed ? " stroke-dasharray=\"6 4\"" : "") << "/>\n";
  }

  struct LegendEntry {
    const ChartSeries* series;
    double x, y;
    std::vector<std::string> lines;
  };

  const Chart& chart_;
  Range x_, y_;
  std::set<double> named_;  // the values of x
  std::vector<LegendEntry> legend_;
  double top_ = kTitle, left_ = kLabel;  // the plot's top left corner
  std::ostringstream out_;
};

}  // namespace

bool Chart::empty() const {
  return std::ranges::none_of(series, [&](const ChartSeries& one) {
    return std::ranges::any_of(one.points, [&](const ChartPoint& point) { return is_drawable(point, log_x); });
  });
}

std::string chart_svg(const Chart& chart) {
  return chart.empty() ? "" : Plot(chart).svg();
}

}  // namespace shardline
