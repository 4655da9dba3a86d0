// The main of test programs that have none of their own.
#include "tests/catch_runner.h"

int main(int argc, char** argv) {
  return shardline::testing::run_cases(argc, argv);
}
