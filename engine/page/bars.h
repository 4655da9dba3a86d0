// Horizontal bars, each of parts that add up, as an SVG element of an HtmlPage.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace shardline {

struct BarRow {
  std::string label;
  std::vector<double> parts;  // >= 0, in the order of Bars::parts
};

struct Bars {
  std::string title;
  std::vector<std::string> parts;  // their names
  std::vector<BarRow> rows;
  std::function<std::string(double)> format;  // shows a value, as "1.2 GiB"
};

std::string bars_svg(const Bars& bars);

}  // namespace shardline
