#include "tests/engine/observe/doctor/fault_scenario.h"

#include <ATen/ops/zeros.h>

#include <memory>

#include "core/error.h"
#include "core/flight/flight_ring.h"

namespace shardline::testing {
namespace {

constexpr int kSteps = 6, kLayers = 4;
using Kind = Fault::Kind;

}  // namespace

std::vector<int> fault_scenario_stages() {
  return {0, 0, 1, 1};
}

void run_fault_scenario(Communicator& world, const Fault& fault) {
  SL_ASSERT(world.size() == 4);
  const int rank = world.rank(), stage = fault_scenario_stages()[rank];
  const CommunicatorPtr dp = world.split(stage, "dp"), pp = world.split(rank % 2, "pp 0>1");
  const at::Tensor border = at::zeros({8, 16}), loss = at::zeros({2}, at::kDouble);
  for (int step = 1; step <= kSteps; ++step) {
    const bool faulty = rank == kFaultyRank && step == kFaultyStep;
    const auto fails = [&](Kind kind) {
      if (!faulty || fault.kind != kind) return false;
      fault.at_fault();
      return true;
    };
    set_flight_step(step);
    set_flight_instruction("forward, microbatch 0, chunk 0");
    WorkPtr message;
    const CommOptions border_options{.what = "activation, microbatch 0, chunk 1"};
    fails(Kind::does_not_send);
    if (stage == 1)
      pp->recv(border, 0, border_options)->wait();
    else if (!fails(Kind::keeps))
      message = pp->send(border, 1, border_options);
    set_flight_instruction("backward_input, microbatch 0, chunk 0");
    for (int layer = kLayers - 1; layer >= 0; --layer) {
      const std::string name = cat("h.", layer), what = "gradients of " + name;
      set_flight_layer(name);
      const bool here = layer == 2;
      if (here) fails(Kind::stops);
      if (here && fails(Kind::skips)) continue;
      const at::Tensor gradients = at::zeros({here && fails(Kind::other_size) ? 1536 : 768});
      dp->all_reduce(gradients, {.what = what.c_str()})->wait();
    }
    set_flight_instruction("updating the weights");
    world.all_reduce(loss, {.what = "loss"})->wait();
    if (message) message->wait();
  }
}

}  // namespace shardline::testing
