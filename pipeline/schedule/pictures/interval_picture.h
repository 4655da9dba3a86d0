// Rows of instructions over time, as a picture for documents and browsers.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "pipeline/schedule/schedule.h"

namespace shardline {

struct PictureBox {
  double start = 0, end = 0;  // any unit
  Instruction instruction;
  std::string tip = "";  // shown when pointed at
};

struct PictureRow {
  std::string label;
  std::vector<PictureBox> boxes;
};

// An SVG element, complete in itself: a title, a row of boxes per row (forward, input gradient, weight gradient by
// colour, with the microbatch where the box is wide enough, later chunks of the row darker), and a legend. Time runs
// from 0 to `span` from left to right.
std::string interval_picture(const std::string& title, const std::vector<PictureRow>& rows, double span);

// A quantity that changes in steps: (time, value from then on).
struct CurveRow {
  std::string label;
  std::vector<std::pair<double, double>> steps;
};

// The same width for quantities: the area under each row's steps, all rows on one scale.
std::string curve_picture(const std::string& title, const std::vector<CurveRow>& rows, double span);

}  // namespace shardline
