#include <iostream>

#include "core/device/accelerator.h"
#include "tests/catch_runner.h"

int main(int argc, char** argv) {
  if (shardline::accelerator_count() == 0) {
    std::cout << "skipped: this machine has no GPU, or no driver for it\n";
    return 77;
  }
  return shardline::testing::run_cases(argc, argv);
}
