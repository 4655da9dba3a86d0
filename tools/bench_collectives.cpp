// The performance of each communicator's collectives, in the manner of nccl-tests: by size, time, algbw = bytes / time,
// and busbw, which is comparable between operations and numbers of ranks. Float32; bytes are those of the larger side
// (all_reduce and broadcast: the tensor; reduce_scatter: the input; all_gather: the output), as in nccl-tests. Every
// operation is also run once with values that show whether it works; wrong elements are counted and lead to exit code
// 1.
//
//   bench_collectives [--ranks 2]        ranks are threads of this process
//   mpirun -np 2 bench_collectives       ranks are processes; alternates between `shared` (the mpi communicator),
//                                        `messages` (the same without shared memory) and `openmpi` (Open MPI's own
//                                        collectives)
//   [--operations all_reduce,...] [--communicators shared,...] [--smallest 1024] [--largest 67108864] [--factor 4]
//   [--rounds 3] [--repetitions 5]
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#ifdef SHARDLINE_MPI
#include <mpi.h>
#endif

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>

#include "core/comm/clock.h"
#include "core/comm/mpi_communicator.h"
#include "core/comm/threads_communicator.h"
#include "core/error.h"

using namespace shardline;

namespace {

struct Options {
  int ranks = 2;  // ranks that are threads
  std::vector<std::string> operations = {"all_reduce", "reduce_scatter", "all_gather",
                                         "all_to_all", "broadcast",      "send_recv"};
  std::vector<std::string> communicators;  // empty: all that are available
  int64_t smallest = 1 << 10, largest = 64 << 20, factor = 4;
  int rounds = 3, repetitions = 5;

  std::vector<int64_t> sizes() const {
    std::vector<int64_t> all;
    for (int64_t bytes = smallest; bytes <= largest; bytes *= factor) all.push_back(bytes);
    return all;
  }
};

struct Place {
  int rank = 0, size = 1;
  int next() const { return (rank + 1) % size; }
  int previous() const { return (rank + size - 1) % size; }
};

// One operation on tensors of one size. The number of elements on the larger side is a multiple of the ranks.
struct Case {
  std::string operation;
  int64_t elements = 0;
  at::Tensor input, output;

  Case(const std::string& name, int64_t bytes, const Place& place)
      : operation(name), elements(std::max<int64_t>(1, bytes / 4 / place.size) * place.size) {
    const int64_t part = elements / place.size;
    input = at::full({name == "all_gather" ? part : elements}, 0, at::kFloat);
    const bool in_place = name == "all_reduce" || name == "broadcast";
    output = in_place ? input : at::full({name == "reduce_scatter" ? part : elements}, 0, at::kFloat);
  }

  // Values, exact in float32, that every operation and rank changes differently.
  void fill(const Place& place) const {
    float* const data = input.mutable_data_ptr<float>();
    for (int64_t i = 0; i < input.numel(); ++i) data[i] = i % 7 + place.rank;
  }

  int64_t expected(int64_t i, const Place& place) const {
    const int64_t n = place.size, part = elements / n;
    if (operation == "reduce_scatter") i += place.rank * part;
    if (operation == "all_reduce" || operation == "reduce_scatter") return n * (i % 7) + n * (n - 1) / 2;
    if (operation == "all_gather") return i % part % 7 + i / part;
    if (operation == "all_to_all") return (place.rank * part + i % part) % 7 + i / part;
    return i % 7 + (operation == "broadcast" ? 0 : place.previous());
  }

  int64_t wrong(const Place& place) const {
    const float* const data = output.const_data_ptr<float>();
    int64_t count = 0;
    for (int64_t i = 0; i < output.numel(); ++i) count += data[i] != expected(i, place);
    return count;
  }
};

// What is measured: a communicator, or Open MPI's own collectives.
struct Carrier {
  Place place;
  std::function<void(const Case&)> run;
  std::function<double(double)> largest;  // maximum over all ranks; also a barrier
};

Carrier carrier_of(const CommunicatorPtr& comm) {
  Carrier carrier{{comm->rank(), comm->size()}, {}, {}};
  carrier.run = [comm, place = carrier.place](const Case& c) {
    if (c.operation == "all_reduce") return comm->all_reduce(c.output)->wait();
    if (c.operation == "reduce_scatter") return comm->reduce_scatter(c.output, c.input)->wait();
    if (c.operation == "all_gather") return comm->all_gather(c.output, c.input)->wait();
    if (c.operation == "all_to_all") return comm->all_to_all(c.output, c.input)->wait();
    if (c.operation == "broadcast") return comm->broadcast(c.output, 0)->wait();
    const WorkPtr received = comm->recv(c.output, place.previous());
    comm->send(c.input, place.next())->wait();
    received->wait();
  };
  carrier.largest = [comm](double value) {
    const at::Tensor tensor = at::full({1}, value, at::kDouble);
    comm->all_reduce(tensor, {.op = ReduceOp::max})->wait();
    return tensor.const_data_ptr<double>()[0];
  };
  return carrier;
}

#ifdef SHARDLINE_MPI
Carrier open_mpi() {
  Carrier carrier;
  MPI_Comm_rank(MPI_COMM_WORLD, &carrier.place.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &carrier.place.size);
  carrier.run = [place = carrier.place](const Case& c) {
    const void* const from = c.input.const_data_ptr();
    void* const to = c.output.mutable_data_ptr();
    const int all = c.elements, part = all / place.size;
    if (c.operation == "all_reduce")
      MPI_Allreduce(MPI_IN_PLACE, to, all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (c.operation == "reduce_scatter")
      MPI_Reduce_scatter_block(from, to, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (c.operation == "all_gather")
      MPI_Allgather(from, part, MPI_FLOAT, to, part, MPI_FLOAT, MPI_COMM_WORLD);
    else if (c.operation == "all_to_all")
      MPI_Alltoall(from, part, MPI_FLOAT, to, part, MPI_FLOAT, MPI_COMM_WORLD);
    else if (c.operation == "broadcast")
      MPI_Bcast(to, all, MPI_FLOAT, 0, MPI_COMM_WORLD);
    else
      MPI_Sendrecv(from, all, MPI_FLOAT, place.next(), 0, to, all, MPI_FLOAT, place.previous(), 0, MPI_COMM_WORLD,
                   MPI_STATUS_IGNORE);
  };
  carrier.largest = [](double value) {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return value;
  };
  return carrier;
}
#endif

struct Result {
  std::vector<double> seconds;  // for one operation, on the slowest rank
  int64_t wrong = 0;
};
using Results = std::map<std::pair<std::string, int64_t>, Result>;  // by operation and bytes

void measure(const Carrier& carrier, const Options& options, Results& results) {
  for (const std::string& operation : options.operations)
    for (const int64_t bytes : options.sizes()) {
      Result& result = results[{operation, bytes}];
      const Case timed(operation, bytes, carrier.place);
      const int in_a_row = std::clamp<int64_t>((4 << 20) / bytes, 1, 200);
      carrier.run(timed);
      for (int repetition = 0; repetition < options.repetitions; ++repetition) {
        carrier.largest(0);
        const double start = steady_seconds();
        for (int i = 0; i < in_a_row; ++i) carrier.run(timed);
        result.seconds.push_back(carrier.largest((steady_seconds() - start) / in_a_row));
      }
      timed.fill(carrier.place);
      carrier.run(timed);
      result.wrong += carrier.largest(timed.wrong(carrier.place));
    }
}

// busbw / algbw of nccl-tests: the traffic of the slowest link per byte of the operation, whatever the algorithm.
double bus_factor(const std::string& operation, int n) {
  if (operation == "all_reduce") return 2.0 * (n - 1) / n;
  if (operation == "broadcast" || operation == "send_recv") return 1;
  return (n - 1.0) / n;
}

// Returns whether all results were right.
bool report(const std::map<std::string, Results>& all, int ranks) {
  std::printf("%-10s %5s %-15s %10s %12s %8s %8s %6s\n", "#", "ranks", "operation", "bytes", "us", "algbw", "busbw",
              "wrong");
  std::printf("%66s %8s\n", "GB/s", "GB/s");
  int64_t wrong = 0;
  for (const auto& [name, results] : all)
    for (const auto& [key, result] : results) {
      auto sorted = result.seconds;
      std::sort(sorted.begin(), sorted.end());
      const double median = (sorted[sorted.size() / 2] + sorted[(sorted.size() - 1) / 2]) / 2;
      const double rate = key.second / median / 1e9;
      std::printf("%-10s %5d %-15s %10ld %12.1f %8.3f %8.3f %6ld\n", name.c_str(), ranks, key.first.c_str(),
                  static_cast<long>(key.second), 1e6 * median, rate, rate * bus_factor(key.first, ranks),
                  static_cast<long>(result.wrong));
      wrong += result.wrong;
    }
  return wrong == 0;
}

int run_threads(const Options& options) {
  std::map<std::string, Results> all;
  for (int round = 0; round < options.rounds; ++round)
    run_ranks(options.ranks, [&](CommunicatorPtr world) {
      Results others;
      measure(carrier_of(world), options, world->rank() == 0 ? all["threads"] : others);
    });
  return report(all, options.ranks) ? 0 : 1;
}

#ifdef SHARDLINE_MPI
// This program initialises MPI itself, so that one process can alternate between Open MPI's collectives and
// shardline's.
int run_processes(Options options) {
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  at::set_num_threads(1);
  if (options.communicators.empty()) options.communicators = {"shared", "messages", "openmpi"};
  std::map<std::string, Results> all;
  Place place;
  for (int round = 0; round < options.rounds; ++round)
    for (const std::string& name : options.communicators) {
      ::setenv("SHARDLINE_SHARED_MEMORY", name == "shared" ? "1" : "0", 1);
      const Carrier carrier = name == "openmpi" ? open_mpi() : carrier_of(make_mpi_world().comm);
      place = carrier.place;
      measure(carrier, options, all[name]);
    }
  const bool good = place.rank > 0 || report(all, place.size);
  MPI_Finalize();
  return good ? 0 : 1;
}
#endif

int run(int argc, char** argv) {
  Options options;
  CLI::App app("bench_collectives: bandwidth of collectives by size");
  app.add_option("--ranks", options.ranks, "number of threads, without mpirun")->check(CLI::PositiveNumber);
  app.add_option("--operations", options.operations)->delimiter(',')->check(CLI::IsMember(options.operations));
  app.add_option("--communicators", options.communicators, "shared, messages, openmpi; only with mpirun")
      ->delimiter(',')
      ->check(CLI::IsMember({"shared", "messages", "openmpi"}));
  app.add_option("--smallest", options.smallest, "smallest size in bytes")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--largest", options.largest, "largest size in bytes")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--factor", options.factor, "ratio of successive sizes")
      ->capture_default_str()
      ->check(CLI::Range(2, 1024));
  app.add_option("--rounds", options.rounds, "rounds over all communicators")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--repetitions", options.repetitions, "repetitions in a round")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
#ifdef SHARDLINE_MPI
  if (mpi_is_launched()) return run_processes(options);
#endif
  return run_threads(options);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << std::endl;
    return 1;
  }
}
