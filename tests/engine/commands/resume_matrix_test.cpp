// A run that stops on one layout and continues on another has the losses, the gradient norms and the weights of one
// that was never stopped, to rounding in float64. The test of all pairs writes docs/resume.md.
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdlib>

#include "engine/checkpoint/checkpoint_directory.h"
#include "models/files/safetensors.h"
#include "tests/case_sample.h"
#include "tests/engine/commands/long_run.h"

#include "tests/catch.h"

namespace shardline::resume_matrix_test {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr int kAll = 9, kFirst = 4;  // steps; an epoch has 6, and the last batch is short

struct Grid {
  const char* name;
  int ranks;
  json smp;
};

// Every degree, schedule, placement, sharding and memory option occurs at least once, and with uneven numbers of heads
// and layers.
const std::vector<Grid>& grids() {
  static const std::vector<Grid> all = {
      {"one process", 1, json::object()},
      {"P=2", 2, {{"pipeline_parallel_degree", 2}, {"microbatches", 2}}},
      {"T=2", 2, {{"tensor_parallel_degree", 2}}},
      {"T=4, activations replicated", 4, {{"tensor_parallel_degree", 4}, {"optimize", "speed"}}},
      {"D=2", 2, {{"ddp", true}}},
      {"D=4, ZeRO-1", 4, {{"shard_optimizer_state", true}}},
      {"D=3, ZeRO-2", 3, {{"shard_optimizer_state", true}, {"shard_gradients", true}}},
      {"D=4, ZeRO-3", 4, {{"sharded_data_parallel_degree", 4}, {"sdp_param_persistence_threshold", 0}}},
      {"D=4 T=2, sharded by 2",
       8,
       {{"sharded_data_parallel_degree", 2}, {"tensor_parallel_degree", 2}, {"sdp_param_persistence_threshold", 0}}},
      {"P=2 T=2 D=2 spread, ZeRO-1",
       8,
       {{"pipeline_parallel_degree", 2},
        {"tensor_parallel_degree", 2},
        {"microbatches", 2},
        {"placement_strategy", "spread"},
        {"shard_optimizer_state", true}}},
      {"P=4 simple, all recomputed",
       4,
       {{"pipeline_parallel_degree", 4},
        {"pipeline", "simple"},
        {"microbatches", 4},
        {"activation_checkpointing", "each"}}},
      {"P=2 in 4 chunks",
       2,
       {{"pipeline_parallel_degree", 2},
        {"pipeline", "interleaved_1f1b"},
        {"virtual_pipeline_degree", 2},
        {"microbatches", 4}}},
      {"P=2 dualpipev", 2, {{"pipeline_parallel_degree", 2}, {"pipeline", "dualpipev"}, {"microbatches", 4}}},
      {"P=3 T=2, recomputed and offloaded",
       6,
       {{"pipeline_parallel_degree", 3},
        {"tensor_parallel_degree", 2},
        {"microbatches", 3},
        {"activation_checkpointing", "contiguous"},
        {"offload_activations", true}}},
      {"T=3 D=2 PTD, sharded by 2",
       6,
       {{"tensor_parallel_degree", 3},
        {"placement_strategy", "PTD"},
        {"sharded_data_parallel_degree", 2},
        {"sdp_param_persistence_threshold", 0}}},
      {"P=2 D=2 zb_h1, selective",
       4,
       {{"pipeline_parallel_degree", 2},
        {"pipeline", "zb_h1"},
        {"microbatches", 4},
        {"ddp", true},
        {"activation_checkpointing", "selective"}}}};
  return all;
}

// Relative to the largest value of a tensor; for norms and losses, relative to the value.
struct Differences {
  double loss = 0, norm = 0, weights = 0;
};

void keep_larger(double& largest, const json& value, const json& wanted) {
  const double a = value, b = wanted;
  largest = std::max(largest, std::abs(a - b) / std::abs(b));
}

double largest_difference(const std::string& one, const std::string& other) {
  const SafetensorsFile a(one), b(other);
  double largest = 0;
  for (const auto& [name, entry] : a.tensors()) {
    const at::Tensor x = a.tensor(name).to(at::kDouble), y = b.tensor(name).to(at::kDouble);
    largest = std::max(largest, ((x - y).abs().max() / x.abs().max()).item<double>());
  }
  return largest;
}

class Matrix {
 public:
  // changes: settings that are added to the config of every run.
  explicit Matrix(json changes = json::object()) : changes_(std::move(changes)) {
    train(run_on("whole", grids()[0]));
    whole_ = metrics_of(folder_ / "whole");
  }

  // Made only once per combination.
  void save_on(size_t from) {
    const json file = run_on(cat("from ", from), grids()[from]);
    train(file);
  }

  Differences continue_on(size_t from, size_t to) {
    const std::string output = folder_ / "to";
    fs::remove_all(output);
    const std::string checkpoint = folder_ / cat("from ", from) + "/" + checkpoint_name(kFirst);
    train(resumed(run_on("to", grids()[to]), checkpoint, output));
    const auto rest = metrics_of(output);
    REQUIRE(rest.size() == kAll - kFirst);
    Differences found;
    for (size_t i = 0; i < rest.size(); ++i) {
      const json& wanted = whole_[kFirst + i];
      CHECK(rest[i]["step"] == wanted["step"]);
      CHECK(rest[i]["epoch"] == wanted["epoch"]);
      CHECK(rest[i]["tokens"] == wanted["tokens"]);
      keep_larger(found.loss, rest[i]["loss"], wanted["loss"]);
      keep_larger(found.norm, rest[i]["grad_norm"], wanted["grad_norm"]);
    }
    found.weights = largest_difference(folder_ / "whole/model.safetensors", output + "/model.safetensors");
    CAPTURE(grids()[from].name, grids()[to].name);
    CHECK(found.loss < 1e-12);
    CHECK(found.norm < 1e-9);
    CHECK(found.weights < 1e-8);
    return found;
  }

 private:
  json run_on(const std::string& output, const Grid& grid) const {
    json file = long_run(
        folder_, output,
        {{"model", {{"config", {{"n_layer", 5}}}}},
         {"training", {{"report_to", "none"}, {"global_batch_size", 24}, {"max_steps", kAll}, {"save_steps", kFirst}}},
         {"smp_options", grid.smp},
         {"mpi_options", {{"processes_per_host", grid.ranks}}},
         {"runtime", {{"dtype", "float64"}, {"timeline_steps", 0}}}});
    file.merge_patch(changes_);
    return file;
  }

  json changes_;
  RunFolder folder_{"resume-matrix"};
  std::vector<json> whole_;
};

std::string power_of_ten(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0e", value);
  return value == 0 ? "0" : text;
}

void write_docs(const std::vector<std::vector<Differences>>& found) {
  std::ofstream docs(SHARDLINE_SOURCE_DIR "/docs/resume.md");
  docs << "# Continuing on another layout\n\n"
          "This page is generated by the test that it describes (see the last paragraph). A run on each of these "
          "layouts saves a\n"
          "checkpoint after step "
       << kFirst << " of " << kAll
       << ", and a run on each of them continues from every one of these checkpoints. The runs\n"
          "use dropout and AdamW and cross the end of an epoch, whose last batch is short:\n\n";
  for (size_t i = 0; i < grids().size(); ++i) docs << i + 1 << ". " << grids()[i].name << '\n';
  Differences largest;
  for (const auto& row : found)
    for (const auto& cell : row) {
      largest.loss = std::max(largest.loss, cell.loss);
      largest.norm = std::max(largest.norm, cell.norm);
      largest.weights = std::max(largest.weights, cell.weights);
    }
  docs << "\nThe layout of the row saved the checkpoint, and that of the column continued from it. Each cell shows the "
          "largest\n"
          "relative difference between a loss and that of one process that was never stopped, in float64. Over all "
          "pairs, losses\n"
          "differ by at most "
       << power_of_ten(largest.loss) << ", gradient norms by " << power_of_ten(largest.norm)
       << ", and final weights by " << power_of_ten(largest.weights)
       << "\nof the largest value of their tensor. The test fails above 1e-12, 1e-9 and 1e-8.\n\n|   |";
  for (size_t j = 0; j < found.size(); ++j) docs << ' ' << j + 1 << " |";
  docs << "\n| --- |";
  for (size_t j = 0; j < found.size(); ++j) docs << " --- |";
  for (size_t i = 0; i < found.size(); ++i) {
    docs << "\n| **" << i + 1 << "** |";
    for (const auto& cell : found[i]) docs << ' ' << power_of_ten(cell.loss) << " |";
  }
  docs << "\n\nA run that continues on the layout that saved the checkpoint has the same bits as one that was never "
          "stopped, also in\n"
          "fp32, bf16 and fp16 (`tests/engine/commands/parts/run_checkpoints_test.cpp`). To regenerate this page:\n\n"
          "    SHARDLINE_WRITE_DOCS=1 ctest --test-dir build-test -R resume_matrix\n";
}

}  // namespace

TEST_CASE("a run that continues on another layout keeps its curve") {
  Matrix matrix;
  CaseSample sample(3);
  for (size_t i = 0; i < grids().size(); ++i) {
    if (!sample.takes_next()) continue;
    matrix.save_on(i);
    matrix.continue_on(i, (i + 5) % grids().size());
  }
}

TEST_CASE("a run whose samples are packed, grouped by length and chosen at random continues on another layout") {
  const RunFolder data("resume-data");
  std::string rows;
  for (int i = 0; i < 300; ++i)
    rows += json({{"text", std::string(2 + i * i % 23, static_cast<char>('a' + i % 26))},
                  {"prompt", std::string(1 + i % 5, 'p')},
                  {"completion", cat(i * i)}})
                .dump() +
            "\n";
  const std::string file = data.write("rows.jsonl", rows);
  const json chosen = {{"train", file},
                       {"max_train_samples", 200},
                       {"max_samples_seed", 5},
                       {"validation_split_percentage", 20},
                       {"validation_split_seed", 3}};
  const auto with = [&](json options) {
    options.update(chosen);
    return json{{"data", options}, {"training", {{"train_sampling_strategy", "group_by_length"}}}};
  };
  for (const json& options : {json{{"packing", "none"}}, json{{"packing", "bfd"}}, json{{"packing", "wrapped_reset"}},
                              json{{"completion_only_loss", true}, {"packing", "bfd"}}}) {
    CAPTURE(options.dump());
    Matrix matrix(with(options));
    matrix.save_on(0);
    const Differences same = matrix.continue_on(0, 0);
    CHECK(same.loss == 0);
    CHECK(same.norm == 0);
    CHECK(same.weights == 0);
    matrix.save_on(13);         // P=3 T=2, recomputed and offloaded
    matrix.continue_on(13, 6);  // D=3, ZeRO-2
  }
}

TEST_CASE("a run that continues keeps its curve: all pairs of layouts", "[.resume_matrix]") {
  Matrix matrix;
  std::vector<std::vector<Differences>> found(grids().size());
  for (size_t i = 0; i < grids().size(); ++i) {
    matrix.save_on(i);
    for (size_t j = 0; j < grids().size(); ++j) found[i].push_back(matrix.continue_on(i, j));
  }
  if (std::getenv("SHARDLINE_WRITE_DOCS")) write_docs(found);
}

}  // namespace shardline::resume_matrix_test
