// Ranks are processes started by mpirun and communicate over Open MPI. Tensors are on the CPU; CUDA tensors are staged
// through pinned host memory, so that several ranks can share one GPU, and their result is on the device after wait().
//
// MPI makes no progress by itself while a program computes. So one thread per process makes all MPI calls: it starts,
// advances and completes operations, reduces, and polls gently, leaving its core to the computation when idle.
//
// If all ranks of a group are on one host, its collectives use shared memory, and the same thread copies and adds. The
// environment variable SHARDLINE_SHARED_MEMORY=0 selects messages instead, for comparisons.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/comm/communicator.h"

namespace shardline {

// Whether the MPI runtime started this process as one of its ranks. Does not initialise MPI.
bool mpi_is_launched();

// Throws ConfigError in a build without MPI.
void require_mpi();

// "Open MPI v4.1.4", or empty in a build without MPI. Does not initialise MPI.
std::string mpi_library();

struct MpiWorld {
  CommunicatorPtr comm;
  int local_rank = 0;  // among the ranks on this host
  int local_size = 1;
  std::vector<int> host_of;  // by rank: the first rank on its host
  std::string library;       // "Open MPI v4.1.4"
};

// Collective over all ranks. A process without mpirun is a world of one rank. Initialises MPI unless the program has
// done so; MPI is then finalised with the last communicator. A program that initialises MPI itself needs at least
// MPI_THREAD_SERIALIZED (and then must not call MPI while communicators exist) or MPI_THREAD_MULTIPLE; it may pass a
// pointer to its MPI_Comm. Sets current_rank(). Throws as require_mpi() does.
MpiWorld make_mpi_world(const void* callers_mpi_comm = nullptr);

// Communicator::abort() passes the rank's last message to this function before MPI ends the whole job with exit code 1.
// The function may itself end the process with another code. Without a handler, nothing is printed.
void set_mpi_abort_handler(std::function<void(const std::string& reason)> handler);

}  // namespace shardline
