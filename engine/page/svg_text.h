// Helpers for the pictures of pages.
#pragma once
#include <ostream>
#include <string>

namespace shardline {

std::string svg_number(double value);  // rounded to tenths
// A text element; `attributes` is written as it is.
void svg_text(std::ostream& out, double x, double y, const std::string& text, const std::string& attributes = "");
double svg_width(const std::string& text, double font_size);  // the approximate width of a text
// "0.25", "1.5k", "3e-05"
std::string tick_text(double value);

}  // namespace shardline
