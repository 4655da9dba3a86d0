#include "engine/page/chart.h"

#include <cmath>
#include <limits>
#include <sstream>

#include "core/number_text.h"
#include "engine/page/bars.h"
#include "engine/page/heat_map.h"
#include "engine/page/html_page.h"
#include "engine/page/svg_text.h"

#include "tests/catch.h"

namespace shardline::chart_test {
namespace {

size_t count_of(const std::string& text, const std::string& words) {
  size_t count = 0;
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++count;
  return count;
}

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

Chart chart_of(std::vector<ChartPoint> points, ChartSeries::Style style = ChartSeries::Style::line_with_marks) {
  return {
      .title = "Time & cost", .x_label = "devices", .y_label = "s", .series = {{"<runs>", style, 0, false, points}}};
}

// The numbers of the only polyline, x and y in turn.
std::vector<double> polyline_of(const std::string& svg) {
  std::string text = svg.substr(svg.find("points=\"") + 8);
  text = text.substr(0, text.find('"'));
  std::vector<double> numbers;
  for (char& c : text) c = c == ',' ? ' ' : c;
  std::istringstream in(text);
  for (double number; in >> number;) numbers.push_back(number);
  return numbers;
}

}  // namespace

TEST_CASE("A chart draws its points in proportion, with their intervals and names", "[page]") {
  const std::string svg = chart_svg(chart_of({{1, 10, 8, 12, "one"}, {2, 20}, {4, 40, 40, 40}}));
  const auto line = polyline_of(svg);
  REQUIRE(line.size() == 6);
  CHECK((line[2] - line[0]) * 2 == Approx(line[4] - line[2]).margin(0.3));
  CHECK((line[1] - line[3]) * 2 == Approx(line[3] - line[5]).margin(0.3));
  CHECK(count_of(svg, "<circle") == 3);
  CHECK(has(svg, "<title>one</title>"));
  CHECK(has(svg, "<title>2: 20</title>"));
  CHECK(has(svg, "Time &amp; cost"));
  CHECK(has(svg, "&lt;runs&gt;"));
  CHECK_FALSE(has(svg, "<runs>"));
}

TEST_CASE("With log_x equal ratios are equally far apart, and each value has a tick", "[page]") {
  Chart chart = chart_of({{1, 1}, {4, 2}, {16, 3}});
  chart.log_x = true;
  const std::string svg = chart_svg(chart);
  const auto line = polyline_of(svg);
  CHECK(line[2] - line[0] == Approx(line[4] - line[2]).margin(0.3));
  for (const char* tick : {">1</text>", ">4</text>", ">16</text>"}) CHECK(has(svg, tick));
}

TEST_CASE("What is not finite, or has no logarithm, is left out", "[page]") {
  const double nan = std::nan(""), infinite = std::numeric_limits<double>::infinity();
  Chart chart = chart_of({{1, nan}, {2, infinite}, {3, 4, nan, 5}, {0, 1}});
  chart.log_x = true;
  const std::string svg = chart_svg(chart);
  CHECK(count_of(svg, "<circle") == 2);  // the mark, and that of the legend
  CHECK_FALSE(has(svg, "nan"));
  CHECK_FALSE(has(svg, "inf"));
  chart.series[0].points = {{0, 1}, {1, nan}};
  CHECK(chart.empty());
  CHECK(chart_svg(chart).empty());
  CHECK(chart_svg({}).empty());
  // Points of equal height, or with a difference that doubles hardly resolve.
  for (const double y : {0.0, 1e18, -1e99}) CHECK_FALSE(has(chart_svg(chart_of({{5, y}, {6, y + 128}})), "nan"));
}

TEST_CASE("Intervals that are much wider than the values do not hide them", "[page]") {
  Chart chart = chart_of({{1, 10, -90, 110}, {2, 20, 19, 21}});
  const auto height = [](const std::string& svg) {
    const auto line = polyline_of(svg);
    return line[1] - line[3];
  };
  CHECK(height(chart_svg(chart)) < 15);
  chart.y_from_zero = true;
  const std::string svg = chart_svg(chart);
  CHECK(height(svg) > 60);
  CHECK(has(svg, ">0</text>"));
  CHECK(has(svg, ">30</text>"));
  CHECK_FALSE(has(svg, ">40</text>"));
  CHECK_FALSE(has(svg, "y1=\"-"));  // above the picture
  CHECK_FALSE(has(svg, "y2=\"-"));
  // If a value is below 0, its whole interval is shown.
  chart.series[0].points = {{1, -10, -90, 110}, {2, 20}};
  CHECK(has(chart_svg(chart), ">-50</text>"));
}

TEST_CASE("Values that are all zero have ticks that differ", "[page]") {
  const std::string svg = chart_svg(chart_of({{1, 0}, {2, 0}}));
  CHECK(count_of(svg, ">0</text>") == 1);
}

TEST_CASE("A long line keeps its extremes", "[page]") {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 100'000; ++i) points.push_back({static_cast<double>(i), i == 54'321 ? 1000.0 : i % 7});
  const std::string svg = chart_svg(chart_of(points, ChartSeries::Style::line));
  const auto line = polyline_of(svg);
  CHECK(line.size() <= 2 * 802);
  double top = line[1];
  for (size_t i = 1; i < line.size(); i += 2) top = std::min(top, line[i]);
  CHECK(top < line[1] - 150);
  CHECK(svg.size() < 40'000);
}

TEST_CASE("A long name of a line is broken into lines that fit", "[page]") {
  using Lines = std::vector<std::string>;
  CHECK(svg_lines("one", 10, 100) == Lines{"one"});
  CHECK(svg_lines("", 10, 100) == Lines{""});
  CHECK(svg_lines("one two", 10, 30) == Lines{"one ", "two"});
  CHECK(svg_lines("abcdef", 10, 20) == Lines{"abc", "def"});
  CHECK(svg_lines("\xc3\xa4\xc3\xb6", 10, 9) == Lines{"\xc3\xa4", "\xc3\xb6"});  // not within a character
  const std::string name = "runs/with-a-name-that-is-longer-than-the-chart/and-another-folder-with-a-name";
  std::string all;
  for (const auto& line : svg_lines(name, 12, 300)) {
    CHECK(svg_width(line, 12) <= 300);
    all += line;
  }
  CHECK(all == name);
  Chart chart = chart_of({{1, 10}, {2, 20}});
  const std::string before = chart_svg(chart);
  chart.series[0].name = name;
  const std::string svg = chart_svg(chart);
  CHECK_FALSE(has(svg, name));
  CHECK(count_of(svg, "<text") == count_of(before, "<text") + 1);
}

TEST_CASE("Ticks are readable", "[page]") {
  CHECK(tick_text(0) == "0");
  CHECK(tick_text(0.30000000000000004) == "0.3");
  CHECK(tick_text(-12'000) == "-12.0k");
  CHECK(tick_text(3e-5) == "3e-05");
}

TEST_CASE("The length of a bar is the sum of its parts", "[page]") {
  const std::string svg = bars_svg({.title = "Memory",
                                    .parts = {"weights", "activations"},
                                    .rows = {{"rank 0", {1024, 3072}}, {"rank 1", {0, 2048}}},
                                    .format = format_bytes});
  CHECK(has(svg, ">4.0 KiB</text>"));
  CHECK(has(svg, "<title>activations: 2.0 KiB</title>"));
  CHECK(count_of(svg, "<title>") == 3);  // a part of size 0 is not drawn
  CHECK_FALSE(has(
      bars_svg({.title = "Memory", .parts = {"weights"}, .rows = {{"rank 0", {0}}}, .format = format_bytes}), "nan"));
}

TEST_CASE("A map shows each coefficient exactly once", "[page]") {
  const std::string svg = heat_map_svg("Map", {"devices", "cost"}, {{1.0, -0.25}, {-0.25, std::nullopt}});
  CHECK(count_of(svg, "<rect") == 3);
  CHECK(has(svg, "devices and cost: -0.250"));
  CHECK(has(svg, "var(--negative)"));
}

TEST_CASE("A chart of one point has a single tick, and a mark in its legend", "[page]") {
  const std::string one = chart_svg(chart_of({{40, 2}}));
  CHECK(has(one, ">40<"));
  for (const char* tick : {">39<", ">39.5<", ">40.5<", ">41<"}) CHECK_FALSE(has(one, tick));
  CHECK(count_of(one, "<circle") == 2);
  CHECK(count_of(chart_svg(chart_of({{40, 2}, {41, 3}})), "<circle") == 2);  // of the points
}

TEST_CASE("A page escapes its texts and closes all of its elements", "[page]") {
  HtmlPage page("Study <1> & \"2\"");
  page.paragraph("a < b");
  page.figure("<svg></svg>", "one");
  page.figure("<svg></svg>", "");
  page.table({{"name", "value"}, {"<x>", "12.5"}});
  page.table({{"run", "steps"}, {"1-device", "21096 (nominal 21094)"}, {"2-devices", "3e-05"}});
  page.table({{"", ""}, {"a_b=1,c", "x_y"}});
  page.figure("<svg></svg>", "wide", HtmlPage::Width::wide);
  page.items({"a & b"});
  const std::string text = std::move(page).text();
  CHECK(has(text, "<title>Study &lt;1&gt; &amp; &quot;2&quot;</title>"));
  CHECK(has(text, "<td>&lt;x&gt;</td><td class=\"number\">12.5</td>"));
  CHECK(has(text, "<td>1-device</td><td class=\"number\">21096 (nominal 21094)</td>"));
  CHECK(has(text, "<td>2-devices</td><td class=\"number\">3e-05</td>"));
  CHECK(has(text, "<table class=\"pairs\">\n<tbody>\n<tr><td>a_<wbr>b=<wbr>1,<wbr>c</td><td>x_y</td></tr>"));
  CHECK(count_of(text, "class=\"pairs\"") == 1);
  CHECK(count_of(text, "<div") == count_of(text, "</div>"));
  CHECK(count_of(text, "<figure>") + count_of(text, "<figure class") == count_of(text, "</figure>"));
  CHECK(has(text, "name=\"viewport\""));
}

}  // namespace shardline::chart_test
