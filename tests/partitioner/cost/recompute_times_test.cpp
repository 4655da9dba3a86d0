// Times of arXiv 2205.05198. No constant was fitted to them, but the description of that paper's engine
// (engine_of_2205_05198) was chosen with these rows in view: whole steps, one block alone, and the time of the 22B
// model's step outside its blocks. Prints its tables.
#include <cmath>
#include <cstdio>

#include "tests/partitioner/cost/published.h"
#include "tests/partitioner/planning.h"

#include "tests/catch.h"

namespace shardline::recompute_times_test {
namespace {

Planning job_of(const RecomputeRow& row, bool sequence_parallel) {
  auto cluster = read_cluster(SHARDLINE_CLUSTERS "/dgx-a100-80gb.json");
  cluster.nodes = row.pipeline;
  return {{.spec = published_gpt(row.heads, row.hidden, row.layers, sequence_parallel),
           .sequence_length = 2048,
           .global_batch = row.batch,
           .types = types_of(Precision::fp16),
           .software = engine_of_2205_05198()},
          {cluster}};
}

Layout layout_of(const RecomputeRow& row, bool sequence_parallel, What recomputed) {
  return {.tensor = 8,
          .pipeline = row.pipeline,
          .microbatch_size = row.microbatch,
          .microbatches = row.batch / row.microbatch,
          .schedule = row.chunks > 1 ? "interleaved_1f1b" : "interleaved",
          .chunks_per_stage = row.chunks,
          .recompute = recompute_blocks(job_of(row, sequence_parallel).workload.spec, recomputed),
          .sequence_parallel = sequence_parallel};
}

StepEstimate step_of(const RecomputeRow& row, bool selective) {
  return estimate_step(job_of(row, selective), layout_of(row, selective, selective ? What::attention : What::layers));
}

LayerPrice block_of_22b(const BlockRow& block) {
  const auto& row = recompute_rows().front();
  const auto job = job_of(row, block.sequence_parallel);
  const auto layout = layout_of(row, block.sequence_parallel, block.recomputed);
  return prices_of(job, layout).at(1);
}

// Prints predicted and measured values in a row, and returns the relative error.
double compared(const char* name, double predicted, double measured, const char* unit) {
  const double error = predicted / measured - 1;
  std::printf("  %-44s %8.2f %8.2f %s %+5.1f%%\n", name, predicted, measured, unit, 100 * error);
  return error;
}

}  // namespace

TEST_CASE("steps of 22B to 1T parameters are predicted within 6 percent") {
  std::printf("arXiv 2205.05198, table 5: predicted, measured\n");
  for (const auto& row : recompute_rows()) {
    CAPTURE(row.name);
    const auto all = std::string(row.name) + ", all recomputed";
    const auto selective = std::string(row.name) + ", selective, sequence parallel";
    CHECK(std::abs(compared(all.c_str(), step_of(row, false).seconds, row.all_recomputed, "s")) < 0.06);
    CHECK(std::abs(compared(selective.c_str(), step_of(row, true).seconds, row.selective, "s")) < 0.06);
  }
}

TEST_CASE("a block's forward and backward are predicted within 6 percent each") {
  std::printf("arXiv 2205.05198, table 4, a block of 22B: predicted, measured\n");
  for (const auto& row : block_rows()) {
    CAPTURE(row.name);
    const auto price = block_of_22b(row);
    const std::string name = row.name;
    CHECK(std::abs(compared((name + ", forward").c_str(), 1e3 * price.forward, row.forward, "ms")) < 0.06);
    CHECK(std::abs(compared((name + ", backward").c_str(), 1e3 * price.backward(), row.backward, "ms")) < 0.06);
  }
}

// Without a pipeline, a step is short, so the work that is done once per step is a visible part of it. Its time is what
// remains of the tables' step times without the blocks, with an uncertainty of 10 ms from rounding. The engine's
// description counts the sweep of clipping because of these two numbers, so this comparison guards the price but does
// not validate it.
TEST_CASE("the time of a step outside its blocks is predicted for one stage") {
  const auto& row = recompute_rows().front();
  for (const bool selective : {false, true}) {
    const auto& block = block_rows()[selective ? 4 : 2];
    const double measured =
        (selective ? row.selective : row.all_recomputed) - row.layers * 1e-3 * (block.forward + block.backward);
    const double predicted = step_of(row, selective).seconds - row.layers * block_of_22b(block).whole();
    std::printf("22B, outside its blocks:");
    CHECK(std::abs(compared(block.name, 1e3 * predicted, 1e3 * measured, "ms")) < 0.15);
  }
}

}  // namespace shardline::recompute_times_test
