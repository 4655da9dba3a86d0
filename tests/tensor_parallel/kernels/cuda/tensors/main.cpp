#include "tests/catch_runner.h"
#include "tests/fake_device/fake_device.h"

int main(int argc, char** argv) {
  shardline::fake::install(1);
  return shardline::testing::run_cases(argc, argv);
}
