// One training run on any layout, with ranks as threads, reduced to what layouts must agree on.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/communicator.h"

namespace shardline::parity {

// One point of the matrix: the axes of the layout and of the model.
struct Point {
  int d = 1, p = 1, t = 1;
  std::string optimize = "speed", pipeline = "interleaved", placement = "cluster", dtype = "float64";
  int microbatches = 1, accumulation = 1;
  bool dropout = false, tied = true, short_batch = false;
  int layers = 5, heads = 6, vocab = 1009, hidden = 24, inner = 0, sequence = 33, global_batch = 12;

  std::string name() const;
  // Points with equal keys describe the same run of the same model and must give the same numbers.
  std::string reference_key() const;
  int world() const { return d * p * t; }
};

struct Outcome {
  std::map<std::string, at::Tensor> gradients;   // of step 1, by logical parameter, whole
  std::map<std::string, at::Tensor> before, after;  // parameters
  double norm = 0;                               // of step 1
  std::vector<double> losses;                    // of `steps` steps
};

// Trains `steps` AdamW steps (lr 1e-3) on `world`; collective. Every rank returns its local part, which `merge` joins.
struct LocalOutcome;
Outcome run_point(const Point& point, int steps);                         // ranks as threads
Outcome run_point_on(const Point& point, int steps, const CommunicatorPtr& world);  // on real ranks; whole on every rank

struct Difference {
  double gradient = 0;  // worst |g - g0| over the tensor's largest |g0| (over the layer's largest where that is zero)
  double norm = 0;      // relative
  double loss = 0;      // worst relative
  double change = 0;    // worst relative L2 of a tensor's change
  std::string worst_gradient, worst_change;  // their tensors
};
Difference compare(const Outcome& outcome, const Outcome& reference);

struct Limits {
  double gradient, norm, loss, change;
};
Limits limits_of(const std::string& dtype);  // double against one process; float likewise

}  // namespace shardline::parity
