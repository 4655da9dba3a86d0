// Programs that run side by side, as many as the cores allow.
#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace shardline {

struct ProgramEnd {
  int code = 0;  // 128 + the signal that ended it
  bool timed_out = false;
  double seconds = 0;
};

struct PoolProgram {
  std::vector<std::string> command;  // the first word is a path
  std::string output, errors;        // files that receive what it prints; may be the same. Their folder must exist
  int cores = 1;
  std::chrono::seconds limit{0};
  std::function<void()> starts;                     // called before it starts
  std::function<void(const ProgramEnd& end)> ends;  // called in the thread that called run_programs
};

// Starts them in their order, at most `at_once` at a time (0: no limit) and with no more than `cores` cores together,
// and waits for all. A program that takes longer than its limit is asked to stop (SIGTERM), and killed if it does not.
// All of them are killed if this process ends. Throws RunError if one cannot be started.
void run_programs(const std::vector<PoolProgram>& programs, int cores, int at_once);

}  // namespace shardline
