// Rows of instructions over time, drawn as a picture for documents and browsers.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "pipeline/schedule/schedule.h"

namespace shardline {

struct PictureBox {
  double start = 0, end = 0;  // any unit
  Instruction instruction;
  std::string tip = "";  // tooltip of the box
};

struct PictureRow {
  std::string label;
  std::vector<PictureBox> boxes;
};

// A self-contained SVG element: a title, a row of boxes for each row (colours show forward, input gradient and weight
// gradient, later chunks of a row are darker, and wide boxes show the microbatch), and a legend. Time runs from left to
// right, from 0 to `span`.
std::string interval_picture(const std::string& title, const std::vector<PictureRow>& rows, double span);

// A quantity that changes in steps: (time, value from then on).
struct CurveRow {
  std::string label;
  std::vector<std::pair<double, double>> steps;
};

// A picture of the same width with the area under each row's steps, all rows at one scale.
std::string curve_picture(const std::string& title, const std::vector<CurveRow>& rows, double span);

}  // namespace shardline
