#include "pipeline/schedule/pictures/interval_picture.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "core/enum_array.h"
#include "core/error.h"

namespace shardline {
namespace {

constexpr double kWidth = 1200, kRow = 28, kLeft = 150, kTop = 56, kLetter = 6.5;

struct Colour {
  const char* name;
  int red, green, blue;
};
constexpr EnumArray<Op, Colour, 3> kColours = {
    {{"forward", 130, 170, 232}, {"input gradient", 122, 200, 150}, {"weight gradient", 240, 184, 96}}};

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return result;
}

// Rounds to tenths, without a trailing ".0".
std::string number(double value) {
  std::ostringstream text;
  text << std::round(value * 10) / 10;
  return text.str();
}

// Darkens later chunks of a row.
std::string fill(Op op, size_t chunk_of_row, size_t chunks_of_row) {
  const auto& colour = kColours[op];
  const double shade = 1 - 0.35 * chunk_of_row / chunks_of_row;
  const auto part = [&](int value) -> int { return value * shade; };
  return cat("rgb(", part(colour.red), ",", part(colour.green), ",", part(colour.blue), ")");
}

void text(std::ostream& out, double x, double y, const std::string& what, const char* more = "") {
  out << "<text x=\"" << number(x) << "\" y=\"" << number(y) << "\"" << more << ">" << escaped(what) << "</text>\n";
}

void box(std::ostream& out, double x, double y, double width, double height, const std::string& colour,
         const std::string& tip = "") {
  out << "<rect x=\"" << number(x) << "\" y=\"" << number(y) << "\" width=\"" << number(width) << "\" height=\""
      << number(height) << "\" fill=\"" << colour << "\" stroke=\"white\" stroke-width=\"0.5\"";
  if (tip.empty())
    out << "/>\n";
  else
    out << "><title>" << escaped(tip) << "</title></rect>\n";
}

std::vector<int> chunks_of(const PictureRow& row) {
  std::set<int> chunks;
  for (const auto& one : row.boxes) chunks.insert(one.instruction.chunk);
  return {chunks.begin(), chunks.end()};
}

void draw(std::ostream& out, const PictureRow& row, double y, double scale) {
  text(out, 8, y + kRow / 2 + 4, row.label);
  const auto chunks = chunks_of(row);
  for (const auto& one : row.boxes) {
    const auto chunk = std::find(chunks.begin(), chunks.end(), one.instruction.chunk) - chunks.begin();
    const double x = kLeft + scale * one.start, width = scale * (one.end - one.start);
    box(out, x, y, width, kRow - 3, fill(one.instruction.op, chunk, chunks.size()), one.tip);
    const auto label = std::to_string(one.instruction.microbatch);
    if (width > kLetter * label.size() + 2)
      text(out, x + width / 2, y + kRow / 2 + 3, label, " text-anchor=\"middle\" pointer-events=\"none\"");
  }
}

void legend(std::ostream& out, bool has_chunks, double y) {
  double x = kLeft;
  for (const Op op : {Op::forward, Op::backward_input, Op::backward_weight}) {
    box(out, x, y - 11, 14, 14, fill(op, 0, 1));
    text(out, x + 20, y, kColours[op].name);
    x += 150;
  }
  if (has_chunks) text(out, x, y, "darker: later chunks");
}

void begin_picture(std::ostream& out, const std::string& title, double height) {
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << number(kLeft + kWidth + 20) << " "
      << number(height) << "\" font-family=\"sans-serif\" font-size=\"11\">\n"
      << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  text(out, 8, 24, title, " font-size=\"15\"");
}

// Draws the area under the steps of a row; `y` is the position of value 0.
void draw(std::ostream& out, const CurveRow& row, double y, double scale, double height_of_one) {
  text(out, 8, y - kRow / 2 + 4, row.label);
  out << "<path fill=\"rgb(190,170,220)\" d=\"M" << number(kLeft) << " " << number(y);
  for (const auto& [time, value] : row.steps)
    out << " H" << number(kLeft + scale * time) << " V" << number(y - height_of_one * value);
  out << " V" << number(y) << " Z\"/>\n";
}

}  // namespace

std::string interval_picture(const std::string& title, const std::vector<PictureRow>& rows, double span) {
  const double height = kTop + kRow * rows.size() + 40;
  std::ostringstream out;
  begin_picture(out, title, height);
  bool has_chunks = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    draw(out, rows[i], kTop + kRow * i, kWidth / span);
    has_chunks |= chunks_of(rows[i]).size() > 1;
  }
  legend(out, has_chunks, height - 14);
  out << "</svg>\n";
  return out.str();
}

std::string curve_picture(const std::string& title, const std::vector<CurveRow>& rows, double span) {
  double most = 0;
  for (const auto& row : rows)
    for (const auto& [time, value] : row.steps) most = std::max(most, value);
  std::ostringstream out;
  begin_picture(out, title, kTop + kRow * rows.size());
  for (size_t i = 0; i < rows.size(); ++i)
    draw(out, rows[i], kTop + kRow * (i + 1) - 3, kWidth / span, most > 0 ? (kRow - 3) / most : 0);
  out << "</svg>\n";
  return out.str();
}

}  // namespace shardline
