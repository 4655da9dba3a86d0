#include <ATen/Parallel.h>

#include "tests/catch_runner.h"
#include "tests/fake_device/fake_device.h"

int main(int argc, char** argv) {
  at::set_num_threads(1);  // tensors are small: more threads would wait for each other most of the time
  shardline::fake::install(1);
  return shardline::testing::run_cases(argc, argv);
}
