// The common part of benchmark programs that run ranks.
#pragma once
#include <exception>
#include <iostream>

#include "core/memory/caching_allocator.h"
#include "engine/launch/start_ranks.h"

namespace shardline {

// Calls run(argc, argv) and returns its result. If it throws, reports the error and returns the exit code for it.
inline int bench_main(int argc, char** argv, int (*run)(int, char**)) {
  use_caching_allocator();
  end_job_with_message_of_failed_rank();
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    return report_error(error, std::cerr);
  }
}

}  // namespace shardline
