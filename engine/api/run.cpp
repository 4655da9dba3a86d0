#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>

#include "core/error.h"
#include "core/memory/caching_allocator.h"
#include "engine/api/command_line.h"
#include "engine/api/registry.h"
#include "engine/launch/lifelines.h"
#include "engine/launch/start_ranks.h"
#include "engine/launch/stuck_threads.h"

namespace shardline {

int run(int argc, char** argv, const Registry& registry) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is an error with a message
  use_caching_allocator();
  end_job_with_message_of_failed_rank();
  end_with_launcher();
  try {
    use(registry);
    const int code = run_command_line(argc, argv);
    if (!std::cout.flush()) throw RunError(cat("standard output cannot be written: ", std::strerror(errno)));
    return code;
  } catch (const std::exception& error) {
    return report_end(error);
  }
}

std::string version() {
  return SHARDLINE_VERSION;
}

}  // namespace shardline
