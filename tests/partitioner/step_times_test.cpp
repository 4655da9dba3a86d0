// Step times against published ones. Prints the tables of docs/planner.md with SHARDLINE_PRINT_TABLES=1.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "partitioner/step_estimate.h"
#include "tests/partitioner/published.h"

#include "tests/catch.h"

namespace shardline {
namespace {

Cluster dgx_a100() {
  auto cluster = read_cluster(SHARDLINE_CLUSTERS "/dgx-a100-80gb.json");
  cluster.nodes = 384;
  return cluster;
}

Job job_of(const ScalingRow& row, const Efficiencies& efficiencies) {
  Job job{.cluster = dgx_a100(),
          .spec = published_gpt(row.heads, row.hidden, row.layers),
          .sequence_length = 2048,
          .global_batch = row.batch,
          .precision = Precision::fp16,
          .software = engine_of_2104_04473()};
  job.cluster.efficiencies = efficiencies;
  return job;
}

Layout layout_of(const ScalingRow& row) {
  return {.tensor = row.tensor,
          .pipeline = row.pipeline,
          .replicas = row.replicas,
          .microbatch_size = row.microbatch,
          .microbatches = row.microbatches,
          .schedule = row.chunks > 1 ? "interleaved_1f1b" : "interleaved",
          .chunks_per_stage = row.chunks,
          .recomputed = Recomputed::blocks};
}

double error_of(const ScalingRow& row, const Efficiencies& efficiencies) {
  return estimate_step(job_of(row, efficiencies), layout_of(row)).seconds / row.seconds - 1;
}

struct Errors {
  double mean = 0, worst = 0;
  void add(double error, int of) {
    mean += std::abs(error) / of;
    worst = std::max(worst, std::abs(error));
  }
};

}  // namespace

TEST_CASE("the matrix efficiency of odd rows predicts the even rows of the weak scaling table") {
  const auto& rows = scaling_rows();
  Efficiencies calibrated;
  double least = 1e9;
  for (int percent = 60; percent <= 95; ++percent) {
    const Efficiencies tried{.matrix = percent / 100.0};
    double squares = 0;
    for (size_t i = 0; i < rows.size(); i += 2) squares += std::pow(error_of(rows[i], tried), 2);
    if (squares < least) {
      least = squares;
      calibrated = tried;
    }
  }
  Errors odd, even;
  std::printf("matrix %.2f, link %.2f\n", calibrated.matrix, calibrated.link);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto step = estimate_step(job_of(rows[i], calibrated), layout_of(rows[i]));
    const double error = step.seconds / rows[i].seconds - 1;
    (i % 2 == 0 ? odd : even).add(error, 5);
    std::printf("%7.1f  %7.2f %7.2f %+5.1f%%  pipeline %.2f reduction %.3f optimizer %.3f bubble %.3f mfu %.3f\n",
                rows[i].billions, step.seconds, rows[i].seconds, 100 * error, step.pipeline_seconds,
                step.reduction_seconds, step.optimizer_seconds, step.bubble_fraction, step.utilization);
  }
  std::printf("odd %.1f worst %.1f; even %.1f worst %.1f\n", 100 * odd.mean, 100 * odd.worst, 100 * even.mean,
              100 * even.worst);
}

}  // namespace shardline
