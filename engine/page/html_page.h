// One self-contained HTML file: no scripts, no other files, readable in light and dark mode and on a phone.
#pragma once
#include <string>
#include <vector>

namespace shardline {

std::string html_escaped(const std::string& text);

// Sections from top to bottom. Texts are escaped; figures are SVG elements of this project, whose colours follow the
// page's (the classes of chart.h, or those of wide pictures).
class HtmlPage {
 public:
  explicit HtmlPage(const std::string& title);

  void heading(const std::string& text);
  void paragraph(const std::string& text);
  void items(const std::vector<std::string>& texts);
  // The first row has the names of the columns; all rows have a cell for each of them. The first
  // row is not shown if all names are empty. A table that is wider than the page scrolls
  // sideways.
  void table(const std::vector<std::vector<std::string>>& cells);
  // Adjacent figures share a row if there is room. wide: the figure keeps its width and scrolls.
  enum class Width { column, wide };
  void figure(const std::string& svg, const std::string& caption, Width width = Width::column);

  std::string text() &&;

 private:
  void leave_figures();

  std::string body_;
  bool in_figures_ = false;
};

}  // namespace shardline
