// A simulation that trains a surrogate of its expensive part inside its own MPI job, and then uses it.
//
// The ranks advance a reaction in many cells. The exact step solves a stiff equation with many substeps; a small
// network learns it from the steps that the simulation makes anyway. Half of the ranks train, on a communicator of
// their own.
#include <mpi.h>
#include <shardline/models/graph/module_layers.h>
#include <shardline/shardline.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

namespace {

constexpr int64_t kInputs = 2, kOutputs = 1, kWidth = 32;

// The change of a concentration in one time step at a temperature: 200 substeps.
double exact_change(double concentration, double temperature) {
  double c = concentration;
  for (int i = 0; i < 200; ++i) c -= 5e-3 * std::exp(2 - 2 / temperature) * c * c;
  return c - concentration;
}

struct HiddenImpl : torch::nn::Module {
  HiddenImpl(int64_t in, int64_t out) : linear(in, out) { register_module("linear", linear); }
  torch::Tensor forward(const torch::Tensor& x) { return torch::tanh(linear(x)); }
  torch::nn::Linear linear;
};
TORCH_MODULE(Hidden);

// A sample is one position with two features, for which the model predicts one number.
shardline::ModuleModel network(const nlohmann::json&) {
  const auto make = [] {
    return torch::nn::Sequential(Hidden(kInputs, kWidth), Hidden(kWidth, kWidth), torch::nn::Linear(kWidth, kOutputs))
        .ptr();
  };
  return {.max_positions = 1, .modules = shardline::modules_of("net", make), .features = kInputs};
}

const char* kConfig = R"({
  "model": {"config": {"model_type": "reaction", "num_labels": 1, "problem_type": "regression"}},
  "task": "sequence-classification",
  "data": {"sequence_length": 1},
  "training": {"global_batch_size": 128, "max_steps": 400, "learning_rate": 1e-2, "lr_scheduler_type": "cosine"},
  "mpi_options": {"processes_per_host": 2}
})";

struct Cells {
  std::vector<double> inputs, changes;

  explicit Cells(int64_t count) : inputs(count * kInputs), changes(count) {}
  void simulate(std::mt19937& random) {
    std::uniform_real_distribution<double> concentration(0.1, 1), temperature(0.5, 1.5);
    for (size_t i = 0; i < changes.size(); ++i) {
      inputs[2 * i] = concentration(random);
      inputs[2 * i + 1] = temperature(random);
      changes[i] = exact_change(inputs[2 * i], inputs[2 * i + 1]);
    }
  }
  shardline::Samples samples() const {
    return {.count = static_cast<int64_t>(changes.size()),
            .features = inputs.data(),
            .width = kInputs,
            .targets = changes.data(),
            .outputs = kOutputs};
  }
};

void train_and_use(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  shardline::Registry registry;
  registry.model("reaction", network, "sequence-classification");
  shardline::Trainer::Options options;
  options.mpi_comm = &comm;
  shardline::Trainer trainer(kConfig, registry, options);

  std::mt19937 random(rank);  // each rank has its own cells
  Cells cells(128 / trainer.place().replicas);
  shardline::StepReport report;
  for (int step = 0; step < 400; ++step) {
    cells.simulate(random);
    report = trainer.step(cells.samples());
    if (rank == 0 && report.step % 100 == 0) std::printf("step %ld: loss %.2e\n", long(report.step), report.loss);
  }
  const std::string saved = trainer.save("out");

  cells.simulate(random);
  const std::vector<double> all = trainer.predict(cells.samples());  // for the cells of all ranks
  const size_t mine = trainer.place().replica * cells.changes.size();
  double worst = 0;
  for (size_t i = 0; i < cells.changes.size(); ++i) worst = std::max(worst, std::abs(all[mine + i] - cells.changes[i]));
  MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_DOUBLE, MPI_MAX, comm);
  if (rank == 0) std::printf("largest error %.3f; saved %s\n", worst, saved.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0, rank = 0, size = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const bool trains = rank < 2;  // the others would continue the simulation
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, trains ? 0 : 1, rank, &comm);
  int code = 0;
  try {
    if (trains) train_and_use(comm);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    code = 1;
  }
  if (code != 0) MPI_Abort(MPI_COMM_WORLD, code);
  MPI_Comm_free(&comm);
  MPI_Finalize();
  return 0;
}
