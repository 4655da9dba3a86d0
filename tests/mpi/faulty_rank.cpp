// Faults of ranks: `mpi_faulty_rank FAULT OUTPUT_DIR`, started by mpirun with 4 ranks, or `mpi_faulty_rank FAULT
// OUTPUT_DIR threads`, which starts threads; one of them stops, or fails while another one computes.
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/communicator_base.h"
#include "core/comm/mpi_communicator.h"
#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "core/flight/flight_ring.h"
#include "engine/launch/start_ranks.h"
#include "engine/launch/stuck_threads.h"
#include "engine/observe/doctor/job_records.h"
#include "engine/run/flight_files.h"
#include "tests/engine/observe/doctor/fault_scenario.h"

namespace {
std::atomic<bool> holds_messages{false};
}

// Replaces Open MPI's function: a message that is held back never leaves.
extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  if (!holds_messages || to != 3) return PMPI_Isend(data, count, type, to, tag, comm, request);
  static char nothing;
  int me = 0;
  PMPI_Comm_rank(comm, &me);
  return PMPI_Irecv(&nothing, 1, MPI_BYTE, me, 1, comm, request);
}

namespace shardline {
namespace {

using testing::Fault;

std::string now_text() {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return std::to_string(now.count());
}

void say_fault() {
  std::cerr << cat("fault at ", now_text(), "\n") << std::flush;
}

void compute_forever() {
  std::this_thread::sleep_for(std::chrono::hours(1));
}

// One of the threads never returns.
int run_threads(const std::string& name, const std::filesystem::path& flights) try {
  std::filesystem::create_directories(flights);
  write_job_places(flights, 0, {std::vector<std::string>(4, host_name()), testing::fault_scenario_stages()});
  open_flight_ring({.path = flights / "rank-0", .ranks = 4, .world_size = 4});
  const auto run_rank = [&](Communicator& world) {
    if (name == "stops")
      return testing::run_fault_scenario(world, {Fault::Kind::stops, [] {
                                                   say_fault();
                                                   compute_forever();
                                                 }});
    if (world.rank() == 3) compute_forever();
    if (world.rank() != 1) return world.barrier();
    std::cout << "printed before the fault\n";
    say_fault();
    throw ConfigError("/data/train: no such file");
  };
  run_ranks(4, [&](CommunicatorPtr world) { run_with_end([&] { note_end_of_rank([&] { run_rank(*world); }); }); });
  return 0;
} catch (const std::exception& error) {
  return report_end(error);
}

}  // namespace
}  // namespace shardline

int main(int argc, char** argv) {
  using namespace shardline;
  const std::string name = argv[1];
  const std::filesystem::path flights = flight_folder(argv[2]);
  if (argc > 3) return run_threads(name, flights);
  end_job_with_message_of_failed_rank();
  const MpiWorld world = make_mpi_world();
  const int rank = world.comm->rank();
  std::filesystem::create_directories(flights);
  const auto hosts = gather_strings(*world.comm, host_name());
  if (world.local_rank == 0) write_job_places(flights, rank, {hosts, testing::fault_scenario_stages()});
  open_flight_ring({.path = flights / cat("rank-", rank), .first_rank = rank, .world_size = world.comm->size()});
  Fault fault;
  fault.at_fault = [&] {
    say_fault();
    if (name == "stops") ::raise(SIGSTOP);
    if (name == "dies") ::raise(SIGKILL);
    holds_messages = name == "holds";
  };
  fault.kind = name == "stops" || name == "dies" ? Fault::Kind::stops
               : name == "skips"                 ? Fault::Kind::skips
               : name == "size"                  ? Fault::Kind::other_size
               : name == "keeps"                 ? Fault::Kind::keeps
               : name == "holds"                 ? Fault::Kind::does_not_send
                                                 : Fault::Kind::none;
  try {
    world.comm->barrier();
    note_end_of_rank([&] { testing::run_fault_scenario(*world.comm, fault); });
  } catch (const std::exception& error) {
    world.comm->abort(error.what());
  }
  return 0;
}
