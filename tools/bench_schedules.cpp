// How close the executor comes to a schedule's theory if computing takes nothing but time: every forward, input
// gradient and weight gradient of a chunk sleeps, and real borders are sent. Any number of ranks then fits on two
// cores. Prints one JSON line per schedule: the theoretical makespan divided by the measured time between two barriers,
// and the remaining time per instruction, in part because sleeps end late. The theory is the simulated makespan; for
// equal costs it equals the published closed form if there is one, as
// tests/pipeline/schedule/kinds/schedule_generators_test.cpp checks.
//
//   bench_schedules [--stages 4] [--microbatches 8] [--schedules zb_h1,zbv] [--milliseconds 20] [--repetitions 5]
//   mpirun -np 4 bench_schedules ...     ranks are processes; otherwise they are threads of this one
//
// Fails (exit code 1) if theory / measured is below --at-least, or if the gain over 1F1B for the same work differs from
// the theoretical one by more than --gain-within. Both use the fastest repetitions, because other work on the machine
// only makes them slower. The printed lines contain medians.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "core/comm/clock.h"
#include "core/comm/mpi_communicator.h"
#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "core/memory/caching_allocator.h"
#include "core/model/backward.h"
#include "pipeline/run/executor.h"
#include "pipeline/schedule/kinds/schedule_choice.h"
#include "pipeline/schedule/schedule_simulation.h"

using namespace shardline;

namespace {

struct Options {
  int stages = 4;
  int microbatches = 0;  // 0: two per stage
  std::vector<std::string> schedules = schedule_names();
  double milliseconds = 20;
  int repetitions = 5;
  int64_t tokens = 256, hidden = 768;  // sizes of a layer border
  double at_least = 0, gain_within = 1;
};

struct Times {
  double step = 0, overslept = 0;  // seconds
  auto operator<=>(const Times&) const = default;
};

// Forward, input gradient and weight gradient sleep for a given time each. One layer is one chunk.
class SleepingLayer : public Layer {
 public:
  // overslept: seconds that this thread's layers slept longer than they should.
  SleepingLayer(bool first, bool last, const Options& options, double& overslept)
      : first_(first), last_(last), options_(options), overslept_(overslept) {}

  Border forward(const Border& input, MicrobatchContext& context) override {
    sleep();
    auto output = last_ ? at::ones({}) : at::empty({options_.tokens, options_.hidden});
    const std::vector<at::Tensor> inputs = first_ ? std::vector{begin_.requires_grad_(true)} : input;
    const auto sizes = inputs[0].sizes().vec();
    const auto backward = [this, sizes, queue = context.weight_grads](const at::Tensor& d_output, const SavedTensors&) {
      sleep();
      queue->push({}, d_output, [this](const at::Tensor&, const at::Tensor&) { sleep(); });
      return std::vector<at::Tensor>{at::empty(sizes)};
    };
    return {with_backward(output, inputs, {}, "sleep", backward)};
  }

 private:
  void sleep() {
    const double start = steady_seconds();
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(options_.milliseconds));
    overslept_ += steady_seconds() - start - options_.milliseconds / 1000;
  }

  bool first_, last_;
  const Options& options_;
  double& overslept_;
  at::Tensor begin_ = at::zeros({1});
};

struct NoParameters : ParameterStore {
  void begin_run(std::vector<int>) override {}
  void acquire(int) override {}
  void release(int) override {}
  void open_gradients(int, bool) override {}
  void close_gradients(int, bool, bool) override {}
  void settle_gradients() override {}
};

// A schedule with everything that one rank needs to run it.
class Pipeline {
 public:
  Pipeline(Schedule schedule, Communicator& pp, const Options& options) : schedule_(std::move(schedule)), pp_(pp) {
    stage_.spec = &spec_;
    stage_.activations = at::TensorOptions().dtype(at::kFloat);
    stage_.layers.resize(schedule_.stage_of_chunk.size());
    for (int chunk = 0; chunk < schedule_.chunks(); ++chunk) {
      const bool last = chunk + 1 == schedule_.chunks();
      spec_.layers.push_back({.name = cat("chunk ", chunk)});
      if (!last) spec_.layers.back().output = {{"hidden", {BorderTensor::kRows, options.hidden}}};
      stage_.layers_of_chunk.push_back({chunk});
      if (schedule_.stage_of_chunk[chunk] == pp.rank())
        stage_.layers[chunk] = std::make_unique<SleepingLayer>(chunk == 0, last, options, overslept_);
    }
    const Microbatch microbatch = causal_microbatch(at::zeros({1, options.tokens}, at::kLong));
    microbatches_.assign(schedule_.microbatches, microbatch);
    executor_.emplace(stage_, pp, parameters_);
  }

  // Seconds between two barriers, and the time that this rank overslept in between.
  Times run() {
    overslept_ = 0;
    pp_.barrier();
    const double start = steady_seconds();
    executor_->run(schedule_, microbatches_, {});
    pp_.barrier();
    return {steady_seconds() - start, overslept_};
  }

 private:
  Schedule schedule_;
  Communicator& pp_;
  ModelSpec spec_;
  StageLayers stage_;
  NoParameters parameters_;
  double overslept_ = 0;
  std::vector<Microbatch> microbatches_;
  std::optional<Executor> executor_;
};

std::vector<Schedule> chosen_schedules(const Options& options) {
  const int microbatches = options.microbatches > 0 ? options.microbatches : 2 * options.stages;
  std::vector<Schedule> schedules;
  for (const auto& name : options.schedules)
    for (const int chunks : name == "interleaved_1f1b" ? std::vector{2, 3} : std::vector{1})
      schedules.push_back(make_schedule({name, options.stages, microbatches, chunks}));
  return schedules;
}

double theory(const Schedule& schedule, const Options& options) {
  return simulate(schedule, kUnboundedSends,
                  [&](int, const Instruction& instruction) {
                    return computes(instruction.op) ? options.milliseconds / 1000 : 0;
                  })
      .makespan();
}

double rounded(double value) {
  return std::round(value * 1e4) / 1e4;
}

// Times of all schedules, alternating; the same on every rank except for the ends of the barriers.
std::vector<std::vector<Times>> measure(const std::vector<Schedule>& schedules, Communicator& pp,
                                        const Options& options) {
  prctl(PR_SET_TIMERSLACK, 1000);  // sleeps end on time
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  for (const auto& schedule : schedules) pipelines.push_back(std::make_unique<Pipeline>(schedule, pp, options));
  std::vector<std::vector<Times>> seconds(schedules.size());
  for (int repetition = 0; repetition <= options.repetitions; ++repetition)
    for (size_t i = 0; i < pipelines.size(); ++i) {
      const Times taken = pipelines[i]->run();
      if (repetition > 0) seconds[i].push_back(taken);  // the first one allocates the buffers
    }
  for (auto& times : seconds) std::sort(times.begin(), times.end());
  return seconds;
}

// Gain over 1F1B for the same work.
double gain(double one, double other, const Schedule& schedule) {
  return one * schedule.chunks() / schedule.stages / other;
}

// Returns whether all schedules are as fast as required.
bool report(const std::vector<Schedule>& schedules, const std::vector<std::vector<Times>>& seconds,
            const char* communicator, const Options& options) {
  const auto median = [&](size_t i) { return seconds[i][seconds[i].size() / 2]; };
  const auto fastest = [&](size_t i) { return seconds[i].front().step; };
  size_t plain = 0;
  while (plain < schedules.size() && schedules[plain].name != "interleaved (1F1B)") ++plain;
  bool good = true;
  for (size_t i = 0; i < schedules.size(); ++i) {
    const auto& schedule = schedules[i];
    const int chunks = schedule.chunks() / schedule.stages;
    const double expected = theory(schedule, options), taken = median(i).step;
    const double microseconds = 1e6 / (3 * chunks * schedule.microbatches);  // per instruction of a stage
    nlohmann::ordered_json line = {{"communicator", communicator},
                                   {"schedule", schedule.name},
                                   {"stages", schedule.stages},
                                   {"microbatches", schedule.microbatches},
                                   {"chunks_per_stage", chunks},
                                   {"theory_seconds", rounded(expected)},
                                   {"seconds", rounded(taken)},
                                   {"fastest", rounded(fastest(i))},
                                   {"slowest", rounded(seconds[i].back().step)},
                                   {"efficiency", rounded(expected / taken)},
                                   {"overhead_us", std::round(microseconds * (taken - expected))},
                                   {"overslept_us", std::round(microseconds * median(i).overslept)}};
    const double slept =
        1 + seconds[i].front().overslept / (chunks * schedule.microbatches * 3 * options.milliseconds / 1000);
    good &= expected * slept / fastest(i) >= options.at_least;
    if (plain < schedules.size()) {
      const double in_theory = gain(theory(schedules[plain], options), expected, schedule);
      line["gain_over_1f1b"] = rounded(gain(median(plain).step, taken, schedule));
      line["gain_in_theory"] = rounded(in_theory);
      good &= std::abs(gain(fastest(plain), fastest(i), schedule) / in_theory - 1) <= options.gain_within;
    }
    std::cout << line.dump() << std::endl;
  }
  return good;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("bench_schedules: schedules in theory and on ranks that sleep");
  app.add_option("--stages", options.stages, "number of ranks, without mpirun")->check(CLI::PositiveNumber);
  app.add_option("--microbatches", options.microbatches, "0: two per stage")->check(CLI::NonNegativeNumber);
  app.add_option("--schedules", options.schedules, "comma-separated names")->delimiter(',');
  app.add_option("--milliseconds", options.milliseconds, "duration of each instruction")->capture_default_str();
  app.add_option("--repetitions", options.repetitions)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--tokens", options.tokens, "rows of a border")->capture_default_str();
  app.add_option("--hidden", options.hidden, "columns of a border")->capture_default_str();
  app.add_option("--at-least", options.at_least, "minimum of theory / measured; the exit code is 1 below it")
      ->capture_default_str();
  app.add_option("--gain-within", options.gain_within,
                 "maximum relative error of the predicted gain; the exit code is 1 above it")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  if (mpi_is_launched()) {
    const MpiWorld world = make_mpi_world();
    at::set_num_threads(1);
    options.stages = world.comm->size();
    const auto schedules = chosen_schedules(options);
    const auto seconds = measure(schedules, *world.comm, options);
    return world.comm->rank() > 0 || report(schedules, seconds, "mpi", options) ? 0 : 1;
  }
  const auto schedules = chosen_schedules(options);
  std::vector<std::vector<Times>> seconds;
  run_ranks(options.stages, [&](CommunicatorPtr world) {
    auto mine = measure(schedules, *world, options);
    if (world->rank() == 0) seconds = std::move(mine);
  });
  return report(schedules, seconds, "threads", options) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  use_caching_allocator();
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << std::endl;
    return 1;
  }
}
