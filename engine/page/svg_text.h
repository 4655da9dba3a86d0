// Helpers for the pictures of pages.
#pragma once
#include <ostream>
#include <string>
#include <vector>

namespace shardline {

std::string svg_number(double value);  // rounded to tenths
// A text element; `attributes` is written as it is.
void svg_text(std::ostream& out, double x, double y, const std::string& text, const std::string& attributes = "");
// The largest width that a text has in the common fonts without serifs.
double svg_width(const std::string& text, double font_size);
// The text in lines of at most this width, broken after spaces and punctuation, or within words that are longer.
std::vector<std::string> svg_lines(const std::string& text, double font_size, double width);
// "0.25", "1.5k", "3e-05"
std::string tick_text(double value);

}  // namespace shardline
