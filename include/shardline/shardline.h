// shardline's public interface. Cheap to include: it includes neither torch's headers nor shardline's own.
//
//   run()     a program of your own with every command of `shardline`, for your own models, tasks, losses, metrics,
//             optimizers and learning-rate schedules
//   Trainer   for a program that keeps its own loop and has its data in memory
//
// Mistakes of the user are thrown as ConfigError, DataError or RunError (shardline/core/error.h). docs/library.md has
// examples.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace at {
class Tensor;
}

namespace shardline {

struct AnswerBody;   // shardline/engine/serve/answers/invocation.h, with Invocation
struct Config;       // shardline/engine/config/keys/options.h
struct ElementRule;  // shardline/optim/update/added_optimizer.h
struct Family;       // shardline/models/families/families.h
struct HeadChoice;   // shardline/models/families/head_choice.h
struct Invocation;
class LabelledTask;  // shardline/engine/tasks/task.h, with the next two
struct Predicted;
struct TaskTraits;
struct ModelFacts;   // shardline/engine/serve/answers/served_model.h, with ServedModel
struct ModuleModel;  // shardline/models/graph/module_layers.h
class ServedModel;
class Tokenizer;     // shardline/engine/data/tokenizer/tokenizer.h
struct TracedModel;  // shardline/models/program/trace/traced_model.h

// The numbers of an optimizer step. All but step_seconds, which each rank measures, are equal on all ranks.
struct StepReport {
  int64_t step = 0;      // counted from 1
  double loss = 0;       // the mean over the global batch, before the update
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  double step_seconds = 0;
  int64_t tokens = 0;  // in the global batch
};
using StepCallback = std::function<void(const StepReport&)>;

// What a program adds to shardline, by the names that configs use, and the steps of serving that it replaces. A
// Registry is a handle: copies add to the same list, and run() or a Trainer makes everything in it known. A name that
// shardline itself has is refused then.
class Registry {
 public:
  Registry();

  // A model of torch::nn modules that run one after the other, named by model.config.model_type. `make` gets
  // model.config; it is called often, on every rank, and must make the same model each time. task: "causal-lm", or
  // "sequence-classification" for models that predict classes or numbers for each sample.
  Registry& model(const std::string& name, std::function<ModuleModel(const nlohmann::json& config)> make,
                  const std::string& task = "causal-lm");
  // A torch::nn::Module of any structure, named by model.config.model_type. It is traced, cut into layers and split
  // like an exported program. `make` gets model.config and is called often; the module is made when the model is
  // opened, on every rank. task: one of shardline's.
  Registry& traced_model(const std::string& name, std::function<TracedModel(const nlohmann::json& config)> make,
                         const std::string& task = "causal-lm");
  // A model made of shardline's own operations, which tensor parallelism can split.
  Registry& family(const std::string& name, const Family& family);
  // A task, named by `task`.
  Registry& task(const std::string& name, const TaskTraits& traits,
                 std::function<std::unique_ptr<LabelledTask>(const Config&, const HeadChoice&,
                                                             const std::shared_ptr<const Tokenizer>&)>
                     make);
  // A further metric of a task: evaluations report it as "eval_NAME".
  Registry& metric(const std::string& task, const std::string& name, std::function<double(const Predicted&)> compute);
  // A loss of rows, named by model.loss.function of traced models and exported programs, or by ModuleModel::loss or
  // model.config.loss of models made of layers. It returns the loss of each row, [rows]; see
  // shardline/models/graph/row_losses.h.
  Registry& loss(const std::string& name,
                 std::function<at::Tensor(const at::Tensor& outputs, const at::Tensor& labels)> of_rows);
  // An optimizer that updates element by element, named by training.optim.
  Registry& optimizer(const std::string& name, const ElementRule& rule);
  // A learning-rate schedule, named by training.lr_scheduler_type. Returns the share of the peak at a step, counted
  // from 1.
  Registry& schedule(const std::string& name,
                     std::function<double(int64_t step, int64_t warmup_steps, int64_t total_steps)> share);
  // Called on every rank after each step of `train`.
  Registry& after_step(StepCallback callback);

  // The steps of `serve` from the body of a request to the body of its answer. Each replaces one of the functions in
  // shardline/engine/serve/handlers.h and can be set once. All but model_fn are called by several threads at the same
  // time. A DataError becomes an answer with status 400.
  // model_fn is called once, before the first request, and may change the facts of the model, such as the names of its
  // labels.
  Registry& model_fn(std::function<void(const std::string& directory, ModelFacts& facts)> prepare);
  Registry& input_fn(std::function<Invocation(const std::string& body, const std::string& content_type)> read);
  Registry& predict_fn(std::function<nlohmann::json(const Invocation& request, const ServedModel& model)> predict);
  Registry& output_fn(std::function<AnswerBody(const nlohmann::json& prediction, const std::string& accept)> write);
  // transform_fn by default calls the three functions above in turn; if it is replaced, they are not called.
  Registry& transform_fn(std::function<AnswerBody(const ServedModel& model, const std::string& body,
                                                  const std::string& content_type, const std::string& accept)>
                             answer);

 private:
  friend void use(const Registry& registry);
  struct Additions;
  std::shared_ptr<Additions> additions_;
};

// The program `shardline` with these additions: call it from main with its arguments. Prints messages and errors, may
// start mpirun with this program and the same arguments, handles signals, and returns the exit code.
int run(int argc, char** argv, const Registry& registry = {});

// Samples in the caller's memory, read only during the call. Exactly one of ids and features is set, and one of labels,
// classes and targets. Predictions need none of the latter, nor do causal language models, whose labels are by default
// the ids. For a model with a column of tensors, features are its numbers; for one with an encoder and a decoder,
// labels are the targets, in which -100 is padding.
struct Samples {
  int64_t count = 0;
  int64_t length = 1;                // tokens of each sample
  const int64_t* ids = nullptr;      // [count, length]
  const int64_t* labels = nullptr;   // [count, length]; -100: does not count
  const double* features = nullptr;  // [count, length, width], for models that take numbers in place of ids
  int64_t width = 0;
  const int64_t* classes = nullptr;  // [count] one of the model's classes, or -100
  const double* targets = nullptr;   // [count, outputs] numbers that the model should output
  int64_t outputs = 0;
};

// Where a rank is in the grid of D replicas, P stages and T tensor-parallel ranks.
struct RankPlace {
  int rank = 0, size = 1;
  int replica = 0, stage = 0, t = 0;              // coordinates
  int replicas = 1, stages = 1, t_degree = 1;     // D, P, T
  int local_rank = 0, local_size = 1;             // on this host
  std::vector<int> pipeline, tensor, replicated;  // the ranks that differ from this one in stage, t or replica alone
  std::vector<int> replica_ranks;                 // all ranks of this replica, the first of which passes its samples
};

// Trains in a program's own loop. All ranks make the same calls in the same order. On every rank of a replica, `step`,
// `evaluate` and `predict` read the samples of its first rank (RankPlace::replica_ranks); what others pass is ignored.
// Each replica passes as many samples as the others.
class Trainer {
 public:
  struct Options {
    // Points to the caller's MPI_Comm, whose ranks train. MPI must then be initialised with MPI_THREAD_MULTIPLE, or
    // with MPI_THREAD_SERIALIZED if the caller makes no MPI calls while the trainer exists. Null: all ranks that mpirun
    // started. MPI is initialised and finalised by shardline only if the program has not initialised it.
    const void* mpi_comm = nullptr;
    // NAME=VALUE, as `--set` of the program: "training.max_steps=10".
    std::vector<std::string> overrides;
  };

  // config: the path of a config file, or its text, which begins with "{". In its `data`, only sequence_length is
  // required; training.max_steps is the length of the learning-rate schedule.
  Trainer(const std::string& config, const Registry& registry, const Options& options);
  explicit Trainer(const std::string& config, const Registry& registry = {});
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  // One optimizer step over the samples of all replicas, at most the config's global batch.
  StepReport step(const Samples& samples);
  // The same for tensors: inputs are ids [n, length] int64 or numbers [n, width] or [n, length, width]; labels are ids'
  // labels [n, length], classes [n] or numbers [n, outputs], or the targets of sources [n, target length], in which
  // -100 is padding.
  StepReport step(const at::Tensor& inputs);
  StepReport step(const at::Tensor& inputs, const at::Tensor& labels);
  // The same for models whose samples are columns of tensors: each column of the data by name, [n, sizes...]. For a
  // model with a single column, the overloads with `inputs` also accept its tensor.
  using Columns = std::map<std::string, at::Tensor>;
  StepReport step(const Columns& columns, const at::Tensor& labels);
  int64_t steps() const;  // so far, including those before a resume
  void after_step(StepCallback callback);

  // The mean loss.
  double evaluate(const Samples& samples);
  double evaluate(const at::Tensor& inputs, const at::Tensor& labels);
  double evaluate(const Columns& columns, const at::Tensor& labels);
  // The model's outputs for each sample, [rows, outputs] as doubles; the samples of all replicas in their order. Traced
  // and exported language models give a row for each token. Throws a RunError for built-in language models, which do
  // not keep the logits of all tokens.
  std::vector<double> predict(const Samples& samples);
  at::Tensor predict(const at::Tensor& inputs);
  at::Tensor predict(const Columns& columns);

  // Saves a checkpoint, `directory`/checkpoint-STEP, and returns its path when it is complete. transformers opens it as
  // a model if the model is of one of transformers' families; `shardline` and `resume` continue from it on any layout.
  std::string save(const std::string& directory);
  // Continues from a checkpoint: weights, optimizer, loss scale and step.
  void resume(const std::string& checkpoint);

  const RankPlace& place() const;
  std::string plan() const;  // as `shardline plan` shows it

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

std::string version();

}  // namespace shardline
