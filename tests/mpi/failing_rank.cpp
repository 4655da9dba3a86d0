// How jobs end when one rank fails: `mpi_failing_rank HOW`, started by mpirun with 3 ranks; rank 1 fails.
#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <string>

#include "core/comm/mpi_communicator.h"
#include "core/error.h"

int main(int, char** argv) {
  using namespace shardline;
  const std::string how = argv[1];
  set_mpi_abort_handler([](const std::string& reason) { std::cerr << reason << std::endl; });
  const MpiWorld world = make_mpi_world();
  const bool fails = world.comm->rank() == 1;
  const at::Tensor tensor = at::zeros({1 << 20}, at::kFloat);
  try {
    world.comm->all_reduce(tensor)->wait();
    if (fails && how == "throw") throw DataError("rank 1: row 7 of train.csv has no label");
    if (fails && how.starts_with("kill")) ::raise(SIGKILL);
    if (fails && how == "hang") ::sleep(1000);
    if (how == "size")
      world.comm->all_reduce(fails ? tensor.narrow(0, 0, 1000) : tensor)->wait();
    else
      world.comm->all_reduce(tensor, {.what = "gradients of layer 3"})->wait();
  } catch (const std::exception& error) {
    world.comm->abort(error.what());
  }
  return 0;
}
