// How the quantities of a study depend on each other.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/study/study_table.h"

namespace shardline {

// Pearson's coefficients between the numbers that differ from row to row: what was chosen (the design) and what came
// out. Of the rows that were measured, or of planned ones if none were; a pair counts the rows that have both.
struct DesignMap {
  std::vector<std::string> names;
  size_t chosen = 0;  // the first so many are of the design
  std::vector<std::vector<std::optional<double>>> cells;

  struct Pair {
    size_t one = 0, other = 0;
    double coefficient = 0;
  };
  // The pair with the largest coefficient, whatever its sign, among those of the design, and among those of one chosen
  // and one resulting quantity.
  std::optional<Pair> largest_of_design() const, largest_of_results() const;
};

DesignMap design_map(const StudyTable& table);

}  // namespace shardline
