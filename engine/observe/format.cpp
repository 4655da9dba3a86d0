#include "engine/observe/format.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdio>

namespace shardline {
namespace {

// "4m 05s": the larger unit and, with two digits, the smaller.
std::string two_units(int64_t large, const char* large_unit, int64_t small, const char* small_unit) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%" PRId64 "%s %02" PRId64 "%s", large, large_unit, small, small_unit);
  return text.data();
}

size_t columns_of(const std::string& text) {  // code points of UTF-8
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

bool begins_like_a_number(const std::string& text) {
  const size_t first = text.find_first_not_of("+-.");
  return first != std::string::npos && text[first] >= '0' && text[first] <= '9';
}

struct Column {
  size_t width = 0;
  bool numeric = false;
};

std::vector<Column> measure(const TableRow& header, const std::vector<TableRow>& rows) {
  size_t count = header.size();
  for (const TableRow& row : rows) count = std::max(count, row.size());
  std::vector<Column> columns(count);
  for (size_t c = 0; c < count; ++c) {
    size_t cells = 0, numbers = 0;
    if (c < header.size()) columns[c].width = columns_of(header[c]);
    for (const TableRow& row : rows) {
      if (c >= row.size() || row[c].empty()) continue;
      columns[c].width = std::max(columns[c].width, columns_of(row[c]));
      ++cells;
      numbers += begins_like_a_number(row[c]);
    }
    columns[c].numeric = cells > 0 && numbers == cells;
  }
  return columns;
}

std::string line_of(const TableRow& row, const std::vector<Column>& columns) {
  std::string line;
  for (size_t c = 0; c < row.size(); ++c) {
    const std::string padding(columns[c].width - columns_of(row[c]), ' ');
    line += c == 0 ? "" : "  ";
    line += columns[c].numeric ? padding + row[c] : row[c] + padding;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string format_percent(double share) {
  return format_decimals(100 * share, 1) + " %";
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || !std::isfinite(seconds)) return "unknown";
  if (seconds < 0.9995e-3) return format_decimals(seconds * 1e6, 0) + " us";
  if (seconds < 0.9995) return format_decimals(seconds * 1e3, 0) + " ms";
  if (seconds < 59.995) return format_decimals(seconds, 2) + " s";
  if (seconds >= 1e15) return "more than a million years";
  const int64_t whole = std::llround(seconds);
  const int64_t minute = 60, hour = 60 * minute, day = 24 * hour;
  if (whole < hour) return two_units(whole / minute, "m", whole % minute, "s");
  if (whole < day) return two_units(whole / hour, "h", whole % hour / minute, "m");
  return two_units(whole / day, "d", whole % day / hour, "h");
}

std::string table(const TableRow& header, const std::vector<TableRow>& rows) {
  const std::vector<Column> columns = measure(header, rows);
  std::string text;
  if (!header.empty()) {
    TableRow rule;
    for (const Column& column : columns) rule.push_back(std::string(column.width, '-'));
    text += line_of(header, columns) + line_of(rule, columns);
  }
  for (const TableRow& row : rows) text += line_of(row, columns);
  return text;
}

}  // namespace shardline
