// Compares `train` as a whole, from files to metrics.jsonl, with a plain loop on one process in double precision. Every
// block has its own loss, so equal losses mean equal samples in every step.
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <sstream>

#include "core/error.h"
#include "engine/commands/job.h"
#include "engine/config/config.h"
#include "tests/case_sample.h"
#include "tests/engine/data/temp_folder.h"
#include "tests/engine/train/plain_gpt2.h"

#include "tests/catch.h"

namespace shardline::train_loop_test {

using Catch::Contains;
using nlohmann::json;

namespace {

constexpr int64_t kLength = 6, kVocab = 19;
constexpr double kRate = 1e-2, kDecay = 0.1, kLimit = 1e-11;
const json kModel = {{"n_layer", 3}, {"n_head", 2}, {"n_embd", 8}, {"vocab_size", kVocab}, {"n_positions", kLength}};

// Properties of a run that do not depend on its grid.
struct Run {
  int64_t blocks = 22;
  int64_t batch = 4, accumulation = 3;  // batch: of all replicas together in one accumulation step
  bool global_batch_size = false;       // the config gives the product of both instead of the two
  bool shuffle = true, drop_last = false;
  double epochs = 3;
  int max_steps = -1;
  int64_t validation = 0;  // blocks in a separate file
  int split_percentage = 0;
  std::optional<int64_t> max_train_samples, max_eval_samples;
  int64_t eval_batch = 4;  // over all replicas
  std::string eval_strategy = "no";
  int eval_delay = 0;  // steps
  std::optional<int> eval_steps;
  bool eval_on_start = false, do_eval = false;
};

struct Grid {
  int d = 1, p = 1, t = 1;
  json smp = json::object();
};

std::string name_of(const Grid& grid) {
  return cat("D ", grid.d, ", P ", grid.p, ", T ", grid.t, " ", grid.smp.dump());
}

// ---- the plain loop

at::Tensor random_blocks(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  auto ids = at::empty({count, kLength}, at::kLong);
  for (int64_t i = 0; i < ids.numel(); ++i) ids.mutable_data_ptr<int64_t>()[i] = random() % kVocab;
  return ids;
}

// splitmix64 from the given state, and a Fisher-Yates shuffle from the end.
std::vector<int64_t> shuffled(int64_t samples, uint64_t state) {
  const auto next = [&state] {
    state += 0x9E3779B97F4A7C15;
    uint64_t z = state;
    for (const auto& [shift, factor] : {std::pair{30, 0xBF58476D1CE4E5B9}, {27, 0x94D049BB133111EB}})
      z = (z ^ (z >> shift)) * factor;
    return z ^ (z >> 31);
  };
  std::vector<int64_t> order(samples);
  std::iota(order.begin(), order.end(), 0);
  for (uint64_t left = samples; left > 1; --left) std::swap(order[left - 1], order[next() % left]);
  return order;
}

std::vector<int64_t> order_of_epoch(const Run& run, int64_t samples, uint64_t epoch) {
  std::vector<int64_t> order(samples);
  std::iota(order.begin(), order.end(), 0);
  if (!run.shuffle) return order;
  // The first outputs of the generators that start from the seed and from the epoch's complement, mixed.
  const auto first = [](uint64_t z) {
    z += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  };
  return shuffled(samples, first(42) ^ first(~epoch));
}

struct Step {
  std::vector<int64_t> samples;
  double epoch;  // afterwards
  bool ends_epoch;
};

// Divides the steps of one epoch: samples fill accumulation steps, and these fill optimizer steps.
std::vector<Step> steps_of_epoch(const Run& run, int64_t samples, int64_t epoch) {
  const auto order = order_of_epoch(run, samples, static_cast<uint64_t>(epoch));
  const int64_t batch = run.global_batch_size ? run.batch * run.accumulation : run.batch;
  const int64_t accumulation = run.global_batch_size ? 1 : run.accumulation;
  std::vector<std::vector<int64_t>> batches;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i % batch == 0) batches.emplace_back();
    batches.back().push_back(order[i]);
  }
  if (run.drop_last && std::ssize(batches.back()) < batch) batches.pop_back();
  std::vector<Step> steps;
  for (size_t i = 0; i < batches.size(); ++i) {
    if (i % accumulation == 0) steps.emplace_back();
    steps.back().samples.insert(steps.back().samples.end(), batches[i].begin(), batches[i].end());
    steps.back().ends_epoch = i + 1 == batches.size();
    steps.back().epoch = static_cast<double>(epoch) + static_cast<double>(i + 1) / static_cast<double>(batches.size());
  }
  return steps;
}

struct Line {
  bool evaluation = false;
  int64_t step = 0;
  double epoch = 0, loss = 0, norm = 0, rate = 0;
  int64_t samples = 0;
};

at::Tensor rows(const at::Tensor& blocks, const std::vector<int64_t>& samples) {
  std::vector<at::Tensor> chosen;
  for (const int64_t sample : samples) chosen.push_back(blocks[sample]);
  return at::stack(chosen);
}

bool evaluates_after(const Run& run, int64_t step, const Step& done, int64_t total) {
  if (step < run.eval_delay) return false;
  if (step == total) return run.eval_strategy != "no" || run.do_eval;
  return run.eval_strategy == "epoch" ? done.ends_epoch
                                      : run.eval_strategy == "steps" && step % run.eval_steps.value_or(500) == 0;
}

std::vector<Line> plain_loop(const Run& run) {
  at::Tensor train = random_blocks(run.blocks, 1), validation = random_blocks(run.validation, 2);
  if (run.split_percentage > 0) {
    const int64_t count = run.blocks * run.split_percentage / 100;
    validation = train.slice(0, 0, count);
    train = train.slice(0, count);
  }
  if (run.max_train_samples) train = train.slice(0, 0, *run.max_train_samples);
  if (run.max_eval_samples) validation = validation.slice(0, 0, *run.max_eval_samples);

  const PlainGpt2 model(kModel);
  PlainAdamW optimizer(model.parameters(), kDecay);
  const auto in_epoch = std::ssize(steps_of_epoch(run, train.size(0), 0));
  const int64_t total =
      run.max_steps > 0 ? run.max_steps : static_cast<int64_t>(std::ceil(run.epochs * static_cast<double>(in_epoch)));
  std::vector<Line> lines;
  const auto evaluate = [&](int64_t step, double epoch) {
    lines.push_back({.evaluation = true, .step = step, .epoch = epoch, .loss = model.loss(validation).item<double>()});
  };
  if (run.eval_on_start) evaluate(0, 0);
  int64_t step = 0;
  for (int64_t epoch = 0; step < total; ++epoch)
    for (const Step& next : steps_of_epoch(run, train.size(0), epoch)) {
      if (++step > total) break;
      const auto loss = model.loss(rows(train, next.samples));
      loss.backward();
      const double rate = kRate * static_cast<double>(total - step + 1) / static_cast<double>(total);
      const double norm = optimizer.step(rate);
      lines.push_back({.step = step,
                       .epoch = next.epoch,
                       .loss = loss.item<double>(),
                       .norm = norm,
                       .rate = rate,
                       .samples = std::ssize(next.samples)});
      if (evaluates_after(run, step, next, total)) evaluate(step, next.epoch);
    }
  return lines;
}

// ---- the real one

std::string tokens_file(const TempFolder& folder, const std::string& name, const at::Tensor& ids) {
  std::string bytes;
  for (int64_t i = 0; i < ids.numel(); ++i) bytes += bytes_of(static_cast<uint16_t>(ids.const_data_ptr<int64_t>()[i]));
  return folder.write(name, bytes);
}

Config config_of(const Run& run, const Grid& grid, const TempFolder& folder) {
  PlainGpt2(kModel).write(folder.path());
  json training = {{"learning_rate", kRate},
                   {"weight_decay", kDecay},
                   {"num_train_epochs", run.epochs},
                   {"max_steps", run.max_steps},
                   {"dataloader_drop_last", run.drop_last},
                   {"per_device_eval_batch_size", std::max<int64_t>(1, run.eval_batch / grid.d / grid.t)},
                   {"eval_strategy", run.eval_strategy},
                   {"eval_delay", run.eval_delay},
                   {"eval_on_start", run.eval_on_start},
                   {"do_eval", run.do_eval},
                   {"report_to", "none"}};
  if (run.global_batch_size) {
    training["global_batch_size"] = run.batch * run.accumulation;
  } else {
    training["per_device_train_batch_size"] = run.batch / grid.d / grid.t;
    training["gradient_accumulation_steps"] = run.accumulation;
  }
  if (run.eval_steps) training["eval_steps"] = *run.eval_steps;
  json data = {{"train", tokens_file(folder, "train.bin", random_blocks(run.blocks, 1))},
               {"format", "tokens"},
               {"sequence_length", kLength},
               {"shuffle", run.shuffle},
               {"validation_split_percentage", run.split_percentage}};
  if (run.validation > 0) data["validation"] = tokens_file(folder, "validation.bin", random_blocks(run.validation, 2));
  if (run.max_train_samples) data["max_train_samples"] = *run.max_train_samples;
  if (run.max_eval_samples) data["max_eval_samples"] = *run.max_eval_samples;
  json smp = grid.smp;
  smp["pipeline_parallel_degree"] = grid.p;
  smp["tensor_parallel_degree"] = grid.t;
  const int world = grid.d * grid.p * grid.t;
  const json file = {{"model", {{"path", folder.path()}}},
                     {"data", data},
                     {"training", training},
                     {"smp_options", smp},
                     {"mpi_options", {{"processes_per_host", world}}},
                     {"runtime",
                      {{"device", "cpu"},
                       {"dtype", "float64"},
                       {"threads_per_rank", 1},
                       {"communicator", world == 1 ? "local" : "threads"}}},
                     {"output_dir", folder.path() / "out"}};
  return parse_config(file.dump(), "train loop test");
}

std::vector<json> train(const Run& run, const Grid& grid) {
  const TempFolder folder;
  ::setenv("XDG_CACHE_HOME", (folder.path() / "cache").c_str(), 1);
  const Config config = config_of(run, grid, folder);
  std::ostringstream out;
  run_on_ranks(config, out, {}, [&](RankContext& context) { train_job(config, context); });
  std::ifstream file(folder.path() / "out" / "metrics.jsonl");
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

double relative(double value, double reference) {
  return std::abs(value / reference - 1);
}

void check_line(const json& line, const Line& expected) {
  INFO(line.dump());
  CHECK(line.at("step") == expected.step);
  CHECK(line.at("epoch") == expected.epoch);
  if (expected.evaluation) {
    CHECK(line.size() == 4);
    CHECK(relative(line.at("eval_loss"), expected.loss) < kLimit);
    CHECK(relative(line.at("eval_perplexity"), std::exp(expected.loss)) < 10 * kLimit);
    return;
  }
  CHECK(relative(line.at("loss"), expected.loss) < kLimit);
  CHECK(relative(line.at("grad_norm"), expected.norm) < 100 * kLimit);
  CHECK(relative(line.at("learning_rate"), expected.rate) < kLimit);
  CHECK(line.at("tokens") == expected.samples * kLength);
  const double seconds = line.at("step_seconds");
  CHECK(relative(line.at("samples_per_second"), static_cast<double>(expected.samples) / seconds) < kLimit);
  CHECK(relative(line.at("tokens_per_second"), static_cast<double>(expected.samples * kLength) / seconds) < kLimit);
}

void check_run(const Run& run, const std::vector<Grid>& grids) {
  static CaseSample sample(3);  // over the grids of all runs
  const auto expected = plain_loop(run);
  for (const auto& grid : grids) {
    if (!sample.takes_next()) continue;
    INFO(name_of(grid));
    const auto lines = train(run, grid);
    REQUIRE(lines.size() == expected.size());
    for (size_t i = 0; i < lines.size(); ++i) check_line(lines[i], expected[i]);
  }
}

const Grid kOne = {}, kDeep = {.d = 2, .p = 2, .t = 2, .smp = {{"microbatches", 2}, {"pipeline", "zb_h1"}}};

}  // namespace

TEST_CASE("three epochs with reshuffling and short last steps equal those of a plain loop, on every layout") {
  const std::vector<Grid> grids = {
      kOne,
      kDeep,
      {.d = 4, .smp = {{"sharded_data_parallel_degree", 4}}},
      {.d = 2, .p = 2, .smp = {{"microbatches", 2}, {"pipeline", "zbv"}, {"shard_optimizer_state", true}}},
      {.p = 4, .smp = {{"microbatches", 4}, {"activation_checkpointing", "each"}}},
      {.t = 2, .smp = {{"optimize", "memory"}, {"prescaled_batch", false}}}};
  for (const bool drop_last : {false, true}) {
    CAPTURE(drop_last);
    check_run({.drop_last = drop_last}, grids);
    check_run({.shuffle = false, .drop_last = drop_last}, {kOne, kDeep});
    check_run({.global_batch_size = true, .drop_last = drop_last}, {kOne, kDeep, {.d = 4}, {.d = 3}});
    check_run({.blocks = 24, .drop_last = drop_last}, {kOne, kDeep});  // nothing to drop
    check_run({.blocks = 21, .accumulation = 1, .drop_last = drop_last}, {kOne, kDeep});
  }
}

TEST_CASE("a run may end within an epoch, and the learning rate falls over its steps") {
  for (const bool drop_last : {false, true})
    for (const Run& run : {Run{.epochs = 0.4}, Run{.epochs = 1.5}, Run{.epochs = 2.01}, Run{.max_steps = 1},
                           Run{.epochs = 0.01, .max_steps = 5}}) {
      Run dropped = run;
      dropped.drop_last = drop_last;
      CAPTURE(run.epochs, run.max_steps, drop_last);
      check_run(dropped, {kOne, kDeep});
    }
}

TEST_CASE("data of fewer samples than ranks or than a batch is trained on as it is") {
  const std::vector<Grid> grids = {
      kOne,
      kDeep,
      {.d = 4, .smp = {{"sharded_data_parallel_degree", 4}, {"sdp_param_persistence_threshold", 0}}},
      {.d = 2, .p = 2, .smp = {{"microbatches", 2}, {"shard_optimizer_state", true}, {"shard_gradients", true}}}};
  for (const int64_t blocks : {1, 3, 5}) {
    CAPTURE(blocks);
    check_run({.blocks = blocks}, grids);
  }
  check_run({.max_train_samples = 7}, grids);
}

TEST_CASE("data of which dataloader_drop_last leaves nothing is an error") {
  CHECK_THAT(message_of<DataError>([] { train({.blocks = 3, .drop_last = true}, kOne); }),
             Contains("3 samples") && Contains("batch of 4") && Contains("dataloader_drop_last"));
  CHECK_THAT(message_of<DataError>([] { train({.blocks = 11, .global_batch_size = true, .drop_last = true}, kOne); }),
             Contains("11 samples") && Contains("batch of 12"));
}

TEST_CASE("evaluation follows the configured steps, and training continues as without it") {
  const std::vector<Grid> grids = {
      kOne,
      kDeep,
      {.d = 4, .smp = {{"sharded_data_parallel_degree", 4}, {"sdp_param_persistence_threshold", 0}}},
      {.d = 2, .p = 2, .smp = {{"microbatches", 2}, {"pipeline", "dualpipev"}, {"shard_optimizer_state", true}}}};
  check_run({.validation = 7, .eval_strategy = "steps", .eval_steps = 2}, grids);
  check_run({.validation = 1, .eval_strategy = "steps", .eval_steps = 1, .eval_on_start = true}, grids);
  check_run({.validation = 7, .eval_strategy = "steps", .eval_delay = 3, .eval_steps = 1}, {kOne, kDeep});
  check_run({.drop_last = true, .validation = 9, .eval_strategy = "epoch"}, grids);
  check_run({.max_steps = 5, .validation = 3, .eval_strategy = "epoch", .eval_on_start = true}, grids);
  check_run({.epochs = 1, .validation = 5, .do_eval = true}, grids);
  check_run({.epochs = 1, .validation = 5}, {kOne});
  check_run({.epochs = 1, .validation = 5, .eval_strategy = "steps"}, {kOne});  // every 500 steps, and at the end
  check_run({.validation = 40, .max_eval_samples = 9, .eval_strategy = "steps", .eval_steps = 3}, {kOne, kDeep});
  check_run({.blocks = 24, .split_percentage = 25, .eval_strategy = "epoch", .eval_on_start = true}, {kOne, kDeep});
  check_run(
      {.blocks = 24, .split_percentage = 25, .max_train_samples = 10, .max_eval_samples = 2, .eval_strategy = "epoch"},
      {kOne, kDeep});
}

}  // namespace shardline::train_loop_test
