// Gives the program into which it is linked the accelerator of tests/fake_device. If the device finds a violation, the
// program ends with a message.
#include <unistd.h>

#include <iostream>

#include "tests/fake_device/fake_device.h"

namespace shardline {
namespace {

void end_program(const std::string& fault) {
  std::cerr << "fake GPU: " << fault << std::endl;
  _exit(70);
}

const bool installed = [] {
  fake::install(1);
  fake::call_on_fault(end_program);
  return true;
}();

}  // namespace
}  // namespace shardline
