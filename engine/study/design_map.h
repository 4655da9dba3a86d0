// How the quantities of a study depend on each other.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/study/study_table.h"

namespace shardline {

// Pearson's coefficients between the numbers that differ from row to row: choices (the design) and results. Computed
// from the measured rows, or from planned ones if there are none; a pair uses the rows that have both numbers.
struct DesignMap {
  std::vector<std::string> names;
  size_t chosen = 0;  // the number of quantities at the beginning that belong to the design
  std::vector<std::vector<std::optional<double>>> cells;

  struct Pair {
    size_t one = 0, other = 0;
    double coefficient = 0;
  };
  // The pair with the largest coefficient, whatever its sign, among those of the design, and among the pairs of a
  // chosen and a resulting quantity.
  std::optional<Pair> largest_of_design() const, largest_of_results() const;
};

DesignMap design_map(const StudyTable& table);

}  // namespace shardline
