// Runs the same Catch cases on all ranks. All join the world first, and all return the worst result.
#include "tests/mpi/mpi_main.h"

#include <ATen/ops/full.h>

#include <iostream>
#include <sstream>

#include "tests/catch_runner.h"

namespace shardline::testing {
namespace {
MpiWorld* world_of_tests = nullptr;
}
MpiWorld& mpi_test_world() {
  return *world_of_tests;
}
}  // namespace shardline::testing

int main(int argc, char** argv) {
  using namespace shardline;
  set_mpi_abort_handler([](const std::string& reason) { std::cerr << reason << std::endl; });
  MpiWorld world = make_mpi_world();
  testing::world_of_tests = &world;

  // One summary is enough; other ranks print something only if a case failed.
  std::ostringstream kept;
  std::streambuf* const console = std::cout.rdbuf();
  if (world.comm->rank() != 0) std::cout.rdbuf(kept.rdbuf());
  const int failed = testing::run_cases(argc, argv);
  std::cout.rdbuf(console);
  if (failed != 0 && world.comm->rank() != 0) std::cout << "rank " << world.comm->rank() << ":\n" << kept.str();

  const at::Tensor worst = at::full({1}, failed, at::kLong);
  world.comm->all_reduce(worst, {.op = ReduceOp::max, .what = "test result"})->wait();
  return worst.const_data_ptr<int64_t>()[0] == 0 ? 0 : 1;
}
