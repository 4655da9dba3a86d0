// Compares formulas in papers with what the planner counts from the layers' descriptions.
#include <cmath>

#include "partitioner/cost/layer_prices.h"
#include "partitioner/memory/published_block_bytes.h"
#include "tests/partitioner/cost/published.h"

#include "tests/catch.h"

namespace shardline::published_formulas_test {
namespace {

constexpr double kGiB = 1073741824.0;

double rounded(double value, int digits) {
  const double unit = std::pow(10, digits);
  return std::round(value * unit) / unit;
}

// Models of arXiv 2205.05198: heads, hidden, layers, T, P, chunks a stage, samples of a microbatch.
struct Model {
  const char* name;
  int heads, hidden, layers, tensor, pipeline, chunks, microbatch;
};
const std::vector<Model> kModels = {{"22B", 64, 6144, 48, 8, 1, 1, 4},
                                    {"175B", 96, 12288, 96, 8, 8, 3, 1},
                                    {"530B", 128, 20480, 105, 8, 35, 3, 1},
                                    {"1T", 160, 25600, 128, 8, 64, 1, 1}};

WorkShape shape_of(const Model& model, int tensor, bool sequence_parallel) {
  return {.sequences = model.microbatch,
          .length = 2048,
          .tensor = tensor,
          .sequence_parallel = sequence_parallel,
          .fused = false,
          .value_bytes = 2};
}

double block_bytes(const Model& model, int tensor, bool sequence_parallel, Recompute::What recomputed) {
  return block_activation_bytes(model.hidden, model.heads, shape_of(model, tensor, sequence_parallel), recomputed);
}

// The bytes of the first stage, including what its pipeline keeps.
double stage_bytes(const Model& model, bool sequence_parallel, Recompute::What recomputed) {
  const double more = model.chunks > 1 ? 1 + (model.pipeline - 1.0) / (model.pipeline * model.chunks) : 1;
  return block_bytes(model, model.tensor, sequence_parallel, recomputed) * model.layers * more;
}

}  // namespace

TEST_CASE("parameters and FLOPs of the weak scaling table follow from the descriptions of its models") {
  for (const auto& row : scaling_rows()) {
    CAPTURE(row.billions);
    const Workload job{
        .spec = published_gpt(row.heads, row.hidden, row.layers), .sequence_length = 2048, .global_batch = row.batch};
    const double l = row.layers, h = row.hidden, s = 2048, words = 51200, batch = row.batch;
    const double parameters = 12 * l * h * h * (1 + 13 / (12 * h) + (words + s) / (12 * l * h));
    CHECK(static_cast<double>(job.spec.parameter_count()) == Approx(parameters + 2 * h).epsilon(1e-12));  // last norm
    CHECK(rounded(parameters / 1e9, 1) == row.billions);

    const double rest = 1 + s / (6 * h);
    CHECK(hardware_flops(job, Recompute::What::layers) ==
          Approx(96 * batch * s * l * h * h * (rest + words / (16 * l * h))).epsilon(1e-12));
    CHECK(model_flops(job) == Approx(72 * batch * s * l * h * h * (rest + words / (12 * l * h))).epsilon(1e-12));
    CHECK(rounded(hardware_flops(job, Recompute::What::layers) / row.seconds / row.devices / 1e12, 0) ==
          Approx(row.tflops).margin(1));  // the published seconds are rounded
    CHECK(rounded((row.pipeline - 1.0) / (row.chunks * row.microbatches), 4) == Approx(row.bubble).margin(1e-9));
  }
}

TEST_CASE("selective recomputation repeats only the attention core") {
  const Workload job{.spec = published_gpt(96, 12288, 96), .sequence_length = 2048, .global_batch = 1};
  const double s = 2048, h = 12288, l = 96;
  CHECK(hardware_flops(job, Recompute::What::attention) - model_flops(job) == Approx(4 * s * s * h * l));
}

TEST_CASE("activations of a block follow table 2 of 2205.05198") {
  for (const auto& model : kModels)
    for (const int t : {2, 4, 8}) {
      CAPTURE(model.name, t);
      const double sbh = 2048.0 * model.microbatch * model.hidden, scores = 5.0 * model.heads * 2048 / model.hidden;
      CHECK(block_bytes(model, 1, false, Recompute::What::nothing) == Approx(sbh * (34 + scores)));
      CHECK(block_bytes(model, t, false, Recompute::What::nothing) == Approx(sbh * (10 + 24.0 / t + scores / t)));
      CHECK(block_bytes(model, t, true, Recompute::What::nothing) == Approx(sbh * (34.0 / t + scores / t)));
      CHECK(block_bytes(model, t, false, Recompute::What::attention) == Approx(sbh * (10 + 24.0 / t)));
      CHECK(block_bytes(model, t, true, Recompute::What::attention) == Approx(sbh * 34 / t));
      CHECK(block_bytes(model, t, false, Recompute::What::layers) == Approx(2 * sbh));
    }
}

TEST_CASE("memory equals figure 1 of 2205.05198, in GiB") {
  const std::vector<double> states = {45.5625, 45.5625, 31.640625, 32.958984375};
  const std::vector<double> all = {59.25, 66.84375, 114.0234375, 131.25}, least = {9.5625, 12.3515625, 23.076, 26.5625};
  for (size_t i = 0; i < kModels.size(); ++i) {
    const auto& model = kModels[i];
    CAPTURE(model.name);
    const double weights = 12.0 * model.layers * model.hidden * model.hidden / (model.tensor * model.pipeline);
    CHECK(18 * weights / kGiB == Approx(states[i]).epsilon(1e-12));
    CHECK(stage_bytes(model, false, Recompute::What::nothing) / kGiB == Approx(all[i]).epsilon(1e-12));
    CHECK(stage_bytes(model, true, Recompute::What::attention) / kGiB == Approx(least[i]).margin(5e-4));
  }
}

// The published percentages label the bars of the figure; they differ from the paper's own table 2 in the last digits.
TEST_CASE(
    "activations equal figure 7 of 2205.05198, in percent of tensor parallelism alone, within 0.15 of a percent") {
  struct Percent {
    double sequence, selective, both, full;
  };
  const std::vector<Percent> bars = {{66.84, 49.42, 16.18, 7.64},
                                     {62.04, 56.53, 18.49, 8.71},
                                     {58.31, 62.04, 20.27, 9.42},
                                     {58.31, 62.04, 20.27, 9.42}};
  for (size_t i = 0; i < kModels.size(); ++i) {
    CAPTURE(kModels[i].name);
    const auto percent = [&](bool sequence_parallel, Recompute::What recomputed) {
      return 100 * block_bytes(kModels[i], 8, sequence_parallel, recomputed) /
             block_bytes(kModels[i], 8, false, Recompute::What::nothing);
    };
    CHECK(percent(true, Recompute::What::nothing) == Approx(bars[i].sequence).margin(0.15));
    CHECK(percent(false, Recompute::What::attention) == Approx(bars[i].selective).margin(0.15));
    CHECK(percent(true, Recompute::What::attention) == Approx(bars[i].both).margin(0.15));
    CHECK(percent(false, Recompute::What::layers) == Approx(bars[i].full).margin(0.15));
  }
}

}  // namespace shardline::published_formulas_test
