#include "core/comm/mpi_communicator.h"

#include <cstdlib>

#include "core/error.h"

namespace shardline {

// Open MPI and other PMI runtimes set these for their processes; a scheduler's own variables say nothing about MPI.
bool mpi_is_launched() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"})
    if (std::getenv(name) != nullptr) return true;
  return false;
}

#ifdef SHARDLINE_MPI
void require_mpi() {}
#else
void require_mpi() {
  throw ConfigError(
      "this build of shardline has no MPI: configure it with -DSHARDLINE_MPI=ON (Debian: apt install "
      "libopenmpi-dev), or use the communicator \"threads\" or \"local\"");
}

std::string mpi_library() {
  return "";
}

MpiWorld make_mpi_world(const void*) {
  require_mpi();
  return {};
}

void set_mpi_abort_handler(std::function<void(const std::string&)>) {}
#endif

}  // namespace shardline
