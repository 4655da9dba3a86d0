// Readable numbers, and aligned tables of text.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace shardline {

std::string format_bytes(double bytes);       // "512 B", "1.2 GiB"
std::string format_count(double count);       // "512", "39.8k", "1.2M", "6.7B"
std::string format_duration(double seconds);  // "250 us", "412 ms", "3.21 s", "4m 05s", "2h 03m", "3d 04h"
std::string format_decimals(double value, int places);
std::string format_percent(double share);  // "12.5 %" of 0.125

// One line of text per row, columns two spaces apart and as wide as their widest cell. A column whose cells all begin
// like numbers is aligned to the right. `header` (may be empty) comes first, underlined. A row may have fewer cells
// than the others.
using TableRow = std::vector<std::string>;
std::string table(const TableRow& header, const std::vector<TableRow>& rows);

}  // namespace shardline
