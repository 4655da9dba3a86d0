// Readable numbers, and aligned tables of text.
#pragma once
#include <string>
#include <vector>

#include "core/number_text.h"

namespace shardline {

std::string format_duration(double seconds);  // "250 us", "412 ms", "3.21 s", "4m 05s", "2h 03m", "3d 04h"
std::string format_percent(double share);     // "12.5 %" of 0.125

// One line of text per row, columns two spaces apart and as wide as their widest cell. A column whose cells all begin
// like numbers is aligned to the right. `header` (may be empty) comes first, underlined. A row may have fewer cells
// than the others.
using TableRow = std::vector<std::string>;
std::string table(const TableRow& header, const std::vector<TableRow>& rows);

}  // namespace shardline
