#include "engine/page/html_page.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace shardline {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1f2328; --muted: #59636e; --line: #d1d9e0; --grid: #e9edf1;
  --edge: rgba(31, 35, 40, .3); --warn: #b42318; --positive: 31, 111, 235; --negative: 207, 82, 20;
  --c0: #0969da; --c1: #bc4c00; --c2: #1a7f37; --c3: #8250df; --c4: #9a6700; --c5: #cf222e; --c6: #1b7c83; --c7: #6e7781; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #0d1117; --ink: #e6edf3; --muted: #9198a1; --line: #3d444d; --grid: #21262d; --edge: rgba(230, 237, 243, .25); --warn: #ff9b8f;
    --positive: 31, 111, 235; --negative: 189, 84, 20;
    --c0: #58a6ff; --c1: #f0883e; --c2: #3fb950; --c3: #bc8cff; --c4: #d29922; --c5: #ff7b72; --c6: #39c5cf; --c7: #8b949e; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .75rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; padding-bottom: .25rem; border-bottom: 1px solid var(--line); }
p, ul { margin: .5rem 0; max-width: 48rem; }
.scroll { overflow-x: auto; margin: .5rem 0; background:
    linear-gradient(to right, var(--paper) 40%, transparent) left / 2.5rem 100% no-repeat local,
    linear-gradient(to left, var(--paper) 40%, transparent) right / 2.5rem 100% no-repeat local,
    linear-gradient(to right, var(--edge), transparent) left / 1rem 100% no-repeat scroll,
    linear-gradient(to left, var(--edge), transparent) right / 1rem 100% no-repeat scroll; }
table { border-collapse: separate; border-spacing: 0; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { color: var(--muted); font-weight: 600; white-space: nowrap; }
th.number, td.number { text-align: right; }
td { white-space: nowrap; }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--paper); }
td.long { min-width: 14rem; max-width: 30rem; white-space: pre-wrap; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem; }
figure { margin: .5rem 0; min-width: 0; }
figure > svg { display: block; width: 100%; max-width: 34rem; height: auto; }
figcaption { font-size: .85rem; color: var(--muted); max-width: 36rem; }
.wide svg { display: block; width: 100%; min-width: 72rem; height: auto; }
.wide svg text { fill: var(--ink); }
.wide svg > rect:first-child { fill: var(--paper); }
.wide svg rect + text[pointer-events] { fill: #000000; }
.wide figcaption { max-width: 48rem; }
@media (max-width: 40rem) {
  td:first-child:not(.number) { min-width: 7rem; max-width: 10rem; white-space: normal; }
  .pairs td + td { min-width: 0; white-space: normal; overflow-wrap: anywhere; } }
)";

constexpr size_t kLongestLine = 44;  // characters in a cell

// "12", "-0.5 +- 0.1", "3e-05", "1.2 GiB", "21096 (nominal 21094)", but not names such as "1-device".
bool begins_as_number(const std::string& text) {
  const size_t first = text.find_first_not_of("+-.");
  const bool has_digit = first != std::string::npos && first < 2 && text[first] >= '0' && text[first] <= '9';
  if (!has_digit || text.size() >= 40) return false;
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  return *end == 0 || std::string_view("-_=/:").find(*end) == std::string_view::npos;
}

// Whether a column has only numbers and empty cells.
bool is_numeric(const std::vector<std::vector<std::string>>& cells, size_t column) {
  size_t numbers = 0;
  for (size_t row = 1; row < cells.size(); ++row) {
    const std::string& text = cells[row][column];
    if (!text.empty() && !begins_as_number(text)) return false;
    numbers += !text.empty();
  }
  return numbers > 0;
}

// Lines of names such as "devices=1,learning_rate=0.001" may end after these.
std::string breakable(const std::string& name) {
  std::string text;
  for (const char c : name) {
    text += html_escaped({c});
    if (c == ',' || c == '=' || c == '_' || c == '/') text += "<wbr>";
  }
  return text;
}

std::string cell_of(const char* tag, const std::string& text, bool numeric, bool is_name) {
  const std::string kind = numeric ? "number" : text.size() > kLongestLine ? "long" : "";
  return std::string("<") + tag + (kind.empty() ? "" : " class=\"" + kind + "\"") + ">" +
         (is_name ? breakable(text) : html_escaped(text)) + "</" + tag + ">";
}

}  // namespace

std::string html_escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '&':
        escaped += "&amp;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

HtmlPage::HtmlPage(const std::string& title) {
  const std::string escaped = html_escaped(title);
  body_ =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      escaped + "</title>\n<style>" + kStyle + "</style>\n</head>\n<body>\n<h1>" + escaped + "</h1>\n";
}

void HtmlPage::heading(const std::string& text) {
  leave_figures();
  body_ += "<h2>" + html_escaped(text) + "</h2>\n";
}

void HtmlPage::paragraph(const std::string& text) {
  leave_figures();
  body_ += "<p>" + html_escaped(text) + "</p>\n";
}

void HtmlPage::items(const std::vector<std::string>& texts) {
  leave_figures();
  body_ += "<ul>\n";
  for (const auto& text : texts) body_ += "<li>" + html_escaped(text) + "</li>\n";
  body_ += "</ul>\n";
}

void HtmlPage::table(const std::vector<std::vector<std::string>>& cells) {
  leave_figures();
  if (cells.empty()) return;
  std::vector<bool> numeric;
  for (size_t column = 0; column < cells.front().size(); ++column) numeric.push_back(is_numeric(cells, column));
  const auto add_row = [&](const char* tag, const std::vector<std::string>& row) {
    body_ += "<tr>";
    for (size_t column = 0; column < row.size(); ++column)
      body_ += cell_of(tag, row[column], numeric[column], column == 0 && !numeric[column]);
    body_ += "</tr>\n";
  };
  const bool is_named = std::ranges::any_of(cells.front(), [](const std::string& name) { return !name.empty(); });
  body_ += std::string("<div class=\"scroll\"><table") + (is_named ? "" : " class=\"pairs\"") + ">\n";
  if (is_named) {
    body_ += "<thead>";
    add_row("th", cells.front());
    body_ += "</thead>\n";
  }
  body_ += "<tbody>\n";
  for (size_t row = 1; row < cells.size(); ++row) add_row("td", cells[row]);
  body_ += "</tbody></table></div>\n";
}

void HtmlPage::figure(const std::string& svg, const std::string& caption, Width width) {
  const std::string below = caption.empty() ? "" : "<figcaption>" + html_escaped(caption) + "</figcaption>";
  if (width == Width::wide) {
    leave_figures();
    body_ += "<figure class=\"wide\"><div class=\"scroll\">" + svg + "</div>" + below + "</figure>\n";
    return;
  }
  if (!in_figures_) body_ += "<div class=\"figures\">\n";
  in_figures_ = true;
  body_ += "<figure>" + svg + below + "</figure>\n";
}

std::string HtmlPage::text() && {
  leave_figures();
  return std::move(body_) + "</body>\n</html>\n";
}

void HtmlPage::leave_figures() {
  if (in_figures_) body_ += "</div>\n";
  in_figures_ = false;
}

}  // namespace shardline
