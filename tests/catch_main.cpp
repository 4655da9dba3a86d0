// The main function of test programs that have no other.
#include "tests/catch_runner.h"

int main(int argc, char** argv) {
  return shardline::testing::run_cases(argc, argv);
}
