// The axes of the matrix, and sets of points that cover them.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "tests/parity/point.h"

namespace shardline::parity {

struct Axis {
  std::string name;
  std::vector<std::string> values;  // the first value is the plain one
  std::function<void(Point&, size_t value)> set;
  std::function<size_t(const Point&)> get;
};

// All axes of a float64 point.
std::vector<Axis> matrix_axes();
// All axes of a point whose task has labels, including the model family and the task.
std::vector<Axis> task_axes();
// The axes of traced modules.
std::vector<Axis> traced_axes();
// The axes of all points together, with all values.
std::vector<Axis> all_axes();
// `axes`, with axis `name` reduced to some of its values.
std::vector<Axis> restricted(std::vector<Axis> axes, const std::string& name, const std::vector<std::string>& values);

// Points in which every feasible pair of values of two axes occurs at least once: greedy, the same for equal seeds.
// Points that cover the most pairs come first.
std::vector<Point> covering_array(const std::vector<Axis>& axes, uint64_t seed);

// Every combination of the values of `crossed`, each in a point whose other axes take random values that are feasible
// with it; combinations that are never feasible are left out. `axes` includes the crossed ones.
std::vector<Point> combinations(const std::vector<Axis>& axes, const std::vector<std::string>& crossed, uint64_t seed);

// The pairs "axis=value, axis=value" that are feasible but occur in none of the points.
std::vector<std::string> missing_pairs(const std::vector<Axis>& axes, const std::vector<Point>& points);

}  // namespace shardline::parity
