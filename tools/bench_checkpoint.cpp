// Measures saving and reading of checkpoints and prints one JSON line. In every repetition it
//   - trains some steps, to measure the time of a step without a checkpoint,
//   - saves a checkpoint while training continues. `stall_seconds` is the total time that is added to the steps
//     from the start of the copy until the checkpoint has its name; `durable_seconds` is the time between these two
//     moments,
//   - saves one while nothing else runs (`idle_seconds`); the previous one is removed first, which is not measured,
//   - reads it like a run that continues from it: verifies its checksums, then fills parameters and optimizer
//     (`read_seconds`), from a cold page cache if the system lets it be dropped.
// With --read PATH it reads that checkpoint instead, which another layout may have written.
//
//   bench_checkpoint CONFIG.json --directory DIR [--set path=value ...] [--steps 5] [--repetitions 3] [--read PATH]
#include <ATen/ops/tensor.h>
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/files/disk_file.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/checkpoint_saver.h"
#include "engine/checkpoint/checkpoint_union.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "engine/config/rules/optimizer_rules.h"
#include "engine/data/dataset/repeated_batch.h"
#include "engine/launch/start_ranks.h"
#include "engine/run/median.h"
#include "models/files/hf_layout.h"
#include "models/files/hf_writer.h"
#include "tools/bench_main.h"

using namespace shardline;
namespace fs = std::filesystem;

namespace {

struct Options {
  std::string config, directory, read;
  std::vector<std::string> overrides;
  int steps = 5, repetitions = 3;
};

// Measures when a directory appears.
class Watch {
 public:
  explicit Watch(std::string path) : path_(std::move(path)), begin_(steady_seconds()), thread_([this] { look(); }) {}
  ~Watch() { end(); }
  // Seconds since the watch began; unset until the directory has appeared.
  std::optional<double> seconds() const { return appeared_ ? std::optional<double>(appeared_ - begin_) : std::nullopt; }
  void end() {
    ends_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  void look() {
    while (!ends_ && !fs::exists(path_)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    appeared_ = steady_seconds();
  }
  std::string path_;
  double begin_;
  std::atomic<double> appeared_ = 0;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

void drop_from_page_cache(const std::string& directory) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    ::fsync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

class Bench {
 public:
  Bench(const Config& config, const Options& options, RankContext& context)
      : config_(config),
        options_(options),
        context_(context),
        parts_(make_parts(config, context)),
        data_(parts_.plan.layout.global_batch(), config.data.sequence_length, parts_.model.spec.vocab_size, 1234),
        trainer_({config, parts_.plan, parts_.model, parts_.groups, context.device}, 1 << 20) {
    fill_parameters(config.model, parts_.model, config.training.seed, trainer_.parameters());
  }

  void run() {
    nlohmann::json line = {{"program", "shardline"}, {"ranks", context_.world->size()}};
    if (!options_.read.empty()) {
      train(1);
      for (int i = 0; i < options_.repetitions; ++i) line["read_seconds"].push_back(read(options_.read));
    } else {
      measure_saving(line);
    }
    if (context_.out) *context_.out << line.dump() << std::endl;
  }

 private:
  void measure_saving(nlohmann::json& line) {
    CheckpointSaverParts parts{.directory = options_.directory,
                               .stores = find_stores(options_.directory, *context_.world),
                               .spec = parts_.model.spec,
                               .parameters = trainer_.parameters(),
                               .optimizer = &trainer_.optimizer(),
                               .optimizer_options = optimizer_options(config_.training),
                               .buffers = buffers_of(parts_.model)};
    if (context_.first()) parts.files[kConfigFile] = config_text(parts_.model.hf_config, at::kFloat);
    CheckpointSaver saver(std::move(parts));
    train(2);
    next_checkpoint();
    saver.start(step_, {});  // the first one touches its memory
    saver.finish();
    for (int i = 0; i < options_.repetitions; ++i) {
      std::vector<double> plain;
      for (int k = 0; k < options_.steps; ++k) plain.push_back(train(1));
      save_while_training(saver, median(plain), line);
      line["idle_seconds"].push_back(save_alone(saver));
      line["read_seconds"].push_back(read(newest_));
    }
    if (!context_.first()) return;
    int64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(newest_)) bytes += entry.file_size();
    line["bytes"] = bytes;
  }

  // Makes room for the next checkpoint: there is one at a time.
  void next_checkpoint() {
    if (context_.first()) fs::remove_all(newest_);
    newest_ = file_in(options_.directory, checkpoint_name(++step_));
    context_.world->barrier();
  }

  // Returns the seconds that the steps took.
  double train(int steps) {
    context_.world->barrier();
    const double start = steady_seconds();
    for (int i = 0; i < steps; ++i) trainer_.train_step(data_, ++step_);
    context_.world->barrier();
    return steady_seconds() - start;
  }

  void save_while_training(CheckpointSaver& saver, double plain, nlohmann::json& line) {
    next_checkpoint();
    Watch watch(newest_);
    double start = steady_seconds(), stall = 0;
    int64_t steps = 0;
    saver.start(step_, {});
    const double copy = steady_seconds() - start;
    for (bool done = false; !done; ++steps) {
      train(1);
      if (saver.is_pending() && !any(saver.is_writing())) saver.proceed();
      done = !any(context_.first() && !watch.seconds());
      const double now = steady_seconds();
      stall += now - start - plain;
      start = now;
    }
    saver.finish();
    line["plain_step_seconds"].push_back(plain);
    line["copy_seconds"].push_back(copy);
    line["stall_seconds"].push_back(stall);
    line["steps_until_durable"].push_back(steps);
    line["durable_seconds"].push_back(watch.seconds().value_or(0));
  }

  double save_alone(CheckpointSaver& saver) {
    next_checkpoint();
    const double start = steady_seconds();
    saver.start(step_, {});
    saver.finish();
    context_.world->barrier();
    return steady_seconds() - start;
  }

  double read(const std::string& path) {
    const Stores stores = find_stores(fs::path(path).parent_path(), *context_.world);
    if (context_.first()) drop_from_page_cache(path);
    context_.world->barrier();
    const double start = steady_seconds();
    const auto damage = complete_checkpoint(path, stores, *context_.world);
    if (!damage.empty()) throw DataError(damage.front());
    load_checkpoint_parameters(path, step_, parts_, trainer_.parameters());
    read_optimizer_state(path, trainer_.parameters(), trainer_.optimizer(), optimizer_options(config_.training),
                         parts_.model.spec);
    context_.world->barrier();
    return steady_seconds() - start;
  }

  bool any(bool mine) {
    const int64_t value = mine;
    auto flag = at::tensor({value}, at::kLong);
    context_.world->all_reduce(flag, {.op = ReduceOp::max, .what = "any?"})->wait();
    return flag.item().toBool();
  }

  const Config& config_;
  const Options& options_;
  RankContext& context_;
  JobParts parts_;
  RepeatedBatch data_;
  RankTrainer trainer_;
  int64_t step_ = 0;
  std::string newest_;  // checkpoint
};

int run(int argc, char** argv) {
  Options options;
  CLI::App app("bench_checkpoint: measures saving and reading of checkpoints");
  app.add_option("config", options.config)->required()->check(CLI::ExistingFile);
  app.add_option("--directory", options.directory, "directory for the checkpoints")->required();
  app.add_option("--set", options.overrides, "path=value that replaces a value of the config");
  app.add_option("--steps", options.steps, "number of measured steps without a checkpoint")->check(CLI::PositiveNumber);
  app.add_option("--repetitions", options.repetitions)->check(CLI::PositiveNumber);
  app.add_option("--read", options.read, "a checkpoint to read, instead of saving any")->check(CLI::ExistingDirectory);
  CLI11_PARSE(app, argc, argv);
  const Config config = read_config(options.config, options.overrides);
  if (needs_mpirun(config)) return start_ranks(config, {argv + 1, argv + argc}, std::cerr);
  run_on_ranks(config, std::cout, console_of_job(),
               [&](RankContext& context) { Bench(config, options, context).run(); });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return bench_main(argc, argv, run);
}
