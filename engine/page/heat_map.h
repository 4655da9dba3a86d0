// A square of coefficients between -1 and 1, as an SVG element of an HtmlPage.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace shardline {

// cells[i][j] belongs to names[i] and names[j]; unset cells stay empty.
std::string heat_map_svg(const std::string& title, const std::vector<std::string>& names,
                         const std::vector<std::vector<std::optional<double>>>& cells);

}  // namespace shardline
