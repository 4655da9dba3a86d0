// Trainers on the communicators of a program, from C++ and through the C header.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <mpi.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "include/shardline/c.h"
#include "include/shardline/shardline.h"
#include "tests/mpi/mpi_main.h"

#include "tests/catch.h"

using namespace shardline;

namespace {

using Catch::Contains;
using nlohmann::json;

constexpr int kRanks = 4;
constexpr int64_t kWords = 31, kLength = 8, kSamples = 4;

class Comm {
 public:
  // The ranks with the same color, in the order of the world.
  explicit Comm(int color) { MPI_Comm_split(MPI_COMM_WORLD, color, 0, &comm_); }
  ~Comm() { MPI_Comm_free(&comm_); }
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  const MPI_Comm* get() const { return &comm_; }

 private:
  MPI_Comm comm_;
};

int world_rank() {
  return testing::mpi_test_world().comm->rank();
}

std::string config_of(int replicas, int stages, int tensor) {
  return json{{"model",
               {{"config",
                 {{"model_type", "gpt2"},
                  {"vocab_size", kWords},
                  {"n_positions", kLength},
                  {"n_embd", 8},
                  {"n_layer", 2},
                  {"n_head", 2},
                  {"resid_pdrop", 0},  // whose masks differ for samples that are equal
                  {"embd_pdrop", 0},
                  {"attn_pdrop", 0}}}}},
              {"data", {{"sequence_length", kLength}}},
              {"training",
               {{"global_batch_size", replicas * kSamples}, {"max_steps", 3}, {"learning_rate", 0.01}, {"seed", 5}}},
              {"smp_options",
               {{"pipeline_parallel_degree", stages}, {"tensor_parallel_degree", tensor}, {"microbatches", stages}}},
              {"mpi_options", {{"processes_per_host", replicas * stages * tensor}}},
              {"runtime", {{"device", "cpu"}, {"threads_per_rank", 1}, {"dtype", "float64"}}}}
      .dump();
}

at::Tensor ids() {
  return (at::arange(kSamples * kLength, at::kLong) * 7).remainder(kWords).view({kSamples, kLength});
}

// The coordinates of all ranks.
std::vector<RankPlace> places_of_all(const RankPlace& mine) {
  const int own[4] = {mine.rank, mine.replica, mine.stage, mine.t};
  std::vector<int> all(4 * kRanks);
  MPI_Allgather(own, 4, MPI_INT, all.data(), 4, MPI_INT, MPI_COMM_WORLD);
  std::vector<RankPlace> places(kRanks);
  for (int i = 0; i < kRanks; ++i)
    places[all[4 * i]] = {.rank = all[4 * i], .replica = all[4 * i + 1], .stage = all[4 * i + 2], .t = all[4 * i + 3]};
  return places;
}

void check_groups(const RankPlace& mine) {
  const auto places = places_of_all(mine);
  const auto ranks = [&](const std::function<bool(const RankPlace&)>& is_in) {
    std::vector<int> found;
    for (const auto& place : places)
      if (is_in(place)) found.push_back(place.rank);
    return found;
  };
  CHECK(mine.size == kRanks);
  CHECK(mine.replicas * mine.stages * mine.t_degree == kRanks);
  CHECK(ranks([&](const RankPlace& p) {
          return p.replica == mine.replica && p.stage == mine.stage && p.t == mine.t;
        }) == std::vector<int>{mine.rank});
  CHECK(mine.tensor == ranks([&](const RankPlace& p) { return p.replica == mine.replica && p.stage == mine.stage; }));
  CHECK(mine.pipeline == ranks([&](const RankPlace& p) { return p.replica == mine.replica && p.t == mine.t; }));
  CHECK(mine.replicated == ranks([&](const RankPlace& p) { return p.stage == mine.stage && p.t == mine.t; }));
  CHECK(mine.replica_ranks == ranks([&](const RankPlace& p) { return p.replica == mine.replica; }));
  CHECK(std::ssize(mine.tensor) == mine.t_degree);
  CHECK(std::ssize(mine.pipeline) == mine.stages);
  CHECK(std::ssize(mine.replicated) == mine.replicas);
}

// Trains and evaluates through the C header, and destroys the trainer. Returns the losses.
std::vector<double> run(shardline_trainer* trainer) {
  if (!trainer) FAIL(shardline_error());
  const at::Tensor rows = ids();
  const shardline_samples samples{.count = kSamples, .length = kLength, .ids = rows.const_data_ptr<int64_t>()};
  std::vector<double> losses;
  for (int i = 0; i < 3; ++i) {
    shardline_report report;
    if (shardline_step(trainer, &samples, &report)) FAIL(shardline_error());
    losses.push_back(report.loss);
  }
  losses.push_back(shardline_evaluate(trainer, &samples));
  shardline_destroy(trainer);
  return losses;
}

void check_close(const std::vector<double>& some, const std::vector<double>& others) {
  REQUIRE(some.size() == others.size());
  double worst = 0;
  for (size_t i = 0; i < some.size(); ++i) worst = std::max(worst, std::abs(some[i] - others[i]));
  CHECK(worst < 1e-11);
}

}  // namespace

TEST_CASE("a trainer returns its groups on the communicator of the program") {
  const Comm all(0);
  Trainer::Options options;
  options.mpi_comm = all.get();
  check_groups(Trainer(config_of(1, 2, 2), {}, options).place());
  check_groups(Trainer(config_of(2, 1, 2), {}, options).place());
  check_groups(Trainer(config_of(2, 2, 1), {}, options).place());
  check_groups(Trainer(config_of(4, 1, 1), {}, options).place());
}

TEST_CASE("the C header trains on communicators of C and of Fortran") {
  const Comm all(0), pair(world_rank() % 2), alone(world_rank());
  const auto one = run(shardline_create_on(config_of(1, 1, 1).c_str(), alone.get()));
  check_close(run(shardline_create_on(config_of(1, 1, 2).c_str(), pair.get())), one);
  check_close(run(shardline_create_on_fortran(config_of(1, 2, 2).c_str(), MPI_Comm_c2f(*all.get()))), one);
  // Every replica passes the same samples, so that the mean loss stays the same.
  check_close(run(shardline_create_on_fortran(config_of(2, 1, 2).c_str(), MPI_Comm_c2f(*all.get()))), one);
}

TEST_CASE("a communicator of another size is refused on all ranks") {
  const Comm all(0);
  CHECK(shardline_create_on(config_of(1, 1, 3).c_str(), all.get()) == nullptr);
  CHECK_THAT(shardline_error(), Contains("4"));
}
