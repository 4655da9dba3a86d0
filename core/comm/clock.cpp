#include "core/comm/clock.h"

#include <ATen/ops/zeros.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "core/comm/communicator.h"

namespace shardline {
namespace {

constexpr int kRoundTrips = 8;
constexpr CommOptions kOptions{.what = "clock"};

// Rank 0's side of the exchange. Returns the offset that `rank` has to add.
double offset_of(Communicator& world, int rank) {
  const at::Tensor time = at::zeros({1}, at::kDouble);
  double best_trip = std::numeric_limits<double>::infinity(), offset = 0;
  for (int i = 0; i < kRoundTrips; ++i) {
    const double begin = steady_seconds();
    world.send(time, rank, kOptions)->wait();
    world.recv(time, rank, kOptions)->wait();
    const double end = steady_seconds();
    if (end - begin >= best_trip) continue;
    best_trip = end - begin;
    offset = (begin + end) / 2 - time.const_data_ptr<double>()[0];
  }
  return std::abs(offset) <= best_trip / 2 ? 0 : offset;
}

void answer(Communicator& world) {
  const at::Tensor time = at::zeros({1}, at::kDouble);
  for (int i = 0; i < kRoundTrips; ++i) {
    world.recv(time, 0, kOptions)->wait();
    time.mutable_data_ptr<double>()[0] = steady_seconds();
    world.send(time, 0, kOptions)->wait();
  }
}

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double clock_offset(Communicator& world) {
  const at::Tensor offsets = at::zeros({world.size()}, at::kDouble);
  if (world.rank() != 0) answer(world);
  for (int rank = 1; world.rank() == 0 && rank < world.size(); ++rank)
    offsets.mutable_data_ptr<double>()[rank] = offset_of(world, rank);
  world.broadcast(offsets, 0, kOptions)->wait();
  return offsets.const_data_ptr<double>()[world.rank()];
}

}  // namespace shardline
