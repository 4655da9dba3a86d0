// One training run on any layout, reduced to what all layouts must agree on.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/model/model_spec.h"
#include "tests/parity/point.h"

namespace shardline {
struct Batch;
struct Plan;
class RankTrainer;
}  // namespace shardline

namespace shardline::parity {

struct Outcome {
  std::map<std::string, at::Tensor> gradients;      // in step 1, by logical parameter, whole, in double
  std::map<std::string, at::Tensor> before, after;  // parameters
  double norm = 0;                                  // in step 1
  std::vector<double> losses;                       // by step
  double copies_differ = 0;  // largest difference between two ranks' copies of one gradient or final parameter
};

// Changes to a run: mistakes planted into the objects that the trainer receives, or work between the steps.
struct Tampering {
  std::function<CommunicatorPtr(const CommunicatorPtr& world)> world;
  std::function<void(ModelSpec&, const Point&)> spec;
  std::function<void(Plan&)> plan;
  std::function<void(Batch&)> batch;
  std::function<void(RankTrainer&, int step)> after_step;  // on every rank; also before step 1, with step 0
  std::function<std::string()> missed;                     // why the fault did not take effect; empty: it did
};

// Where a rank computes, and what carries its tensors: `world` if null.
struct RankDevice {
  at::Device device = at::kCPU;
  CommunicatorPtr world = nullptr;
};
using ChooseDevice = std::function<RankDevice(const CommunicatorPtr& world)>;
ChooseDevice shared_by_ranks(at::Device device);  // each with a stream of its own

// Ranks are threads, on CPUs unless `choose` says otherwise. What it makes current on a thread (device, stream) stays
// so only until the end of the run.
Outcome run_point(const Point& point, const Tampering& tampering = {}, const ChooseDevice& choose = {});
// On real ranks, whose device is the thread's current one. Collective; every rank returns the whole outcome.
Outcome run_point_on(const Point& point, const CommunicatorPtr& world, const Tampering& tampering = {},
                     const RankDevice& on = {});

// The run of one process that the point must reproduce; kept, because many points share one.
const Outcome& reference(const Point& point);

// Calls work(0) ... work(count - 1), as many at once as there are cores: a single point rarely keeps them busy.
void at_once(size_t count, const std::function<void(size_t)>& work);

struct Difference {
  double gradient = 0;  // worst |g - g0| over the tensor's largest |g0| (over the layer's largest if g0 is zero)
  double norm = 0;      // relative
  double loss = 0;      // worst relative
  double change = 0;    // worst relative L2 of a tensor's change
  double copies = 0;    // copies_differ; must be 0
  std::string worst_gradient, worst_change;  // their tensors

  // The quantities that exceed their limits, as in "gradient, norm"; empty if none does.
  std::string exceeds(const Limits& limits) const;
};
Difference compare(const Outcome& outcome, const Outcome& reference, const Limits& limits);
bool bit_equal(const Outcome& a, const Outcome& b);

}  // namespace shardline::parity
