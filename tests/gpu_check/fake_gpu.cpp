// Linked into a program, it gives the program the accelerator of tests/fake_device. A mistake that the device finds ends
// the program with a message.
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "tests/fake_device/fake_device.h"

namespace shardline {
namespace {

void report_faults() {
  const auto faults = fake::take_faults();
  for (const auto& fault : faults) std::cerr << "fake GPU: " << fault << std::endl;
  if (!faults.empty()) _exit(70);
}

const bool installed = [] {
  fake::install(1);
  return std::atexit(report_faults) == 0;
}();

}  // namespace
}  // namespace shardline
