// Compares step times with published ones: one constant is fitted to half of a table, and everything else is predicted
// with it. Prints its tables.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "partitioner/cut/assign.h"
#include "tests/partitioner/cost/published.h"
#include "tests/partitioner/planning.h"

#include "tests/catch.h"

namespace shardline::step_times_test {
namespace {

Cluster dgx_a100() {
  auto cluster = read_cluster(SHARDLINE_CLUSTERS "/dgx-a100-80gb.json");
  cluster.nodes = 384;
  return cluster;
}

Planning job_of(const ScalingRow& row, const Efficiencies& efficiencies) {
  Planning job{{.spec = published_gpt(row.heads, row.hidden, row.layers),
                .sequence_length = 2048,
                .global_batch = row.batch,
                .types = types_of(Precision::fp16),
                .software = engine_of_2104_04473()},
               {dgx_a100()}};
  job.machines.cluster.efficiencies = efficiencies;
  return job;
}

std::vector<Recompute> all_blocks(int heads, int hidden, int layers) {
  return recompute_blocks(published_gpt(heads, hidden, layers), What::layers);
}

Layout layout_of(const ScalingRow& row) {
  return {.tensor = row.tensor,
          .pipeline = row.pipeline,
          .replicas = row.replicas,
          .microbatch_size = row.microbatch,
          .microbatches = row.microbatches,
          .schedule = row.chunks > 1 ? "interleaved_1f1b" : "interleaved",
          .chunks_per_stage = row.chunks,
          .recompute = all_blocks(row.heads, row.hidden, row.layers)};
}

// The parts of a row that do not depend on the constants.
struct Prepared {
  const ScalingRow& row;
  Schedule schedule;
  MeshSpans spans;

  StepEstimate estimate(const Efficiencies& efficiencies) const {
    const auto job = job_of(row, efficiencies);
    const auto layout = layout_of(row);
    const auto prices = layer_prices(job.workload, job.machines, layout, spans);
    std::vector<double> costs;
    for (const auto& price : prices) costs.push_back(price.whole());
    return estimate_step(job.workload, job.machines, layout, schedule, assign_chunks(costs, schedule.stage_of_chunk),
                         prices, spans);
  }
  double error(const Efficiencies& efficiencies) const { return estimate(efficiencies).seconds / row.seconds - 1; }
};

std::vector<Prepared> prepared_rows() {
  std::vector<Prepared> rows;
  for (const auto& row : scaling_rows())
    rows.push_back({row, make_schedule(layout_of(row).schedule_choice()), mesh_spans(layout_of(row).mesh(), 8, 1)});
  return rows;
}

struct Errors {
  double sum = 0, worst = 0;
  int count = 0;
  void add(double error) {
    sum += std::abs(error);
    worst = std::max(worst, std::abs(error));
    ++count;
  }
  double mean() const { return sum / count; }
};

// TFLOP/s of a device by the paper's formula, which includes recomputed forward passes.
double rate(const Planning& job, Layout layout) {
  layout.recompute = recompute_blocks(job.workload.spec, What::layers);
  return hardware_flops(job.workload, What::layers) / estimate_step(job, layout).seconds / layout.world() / 1e12;
}

// A job of the figures: one or several replicas, with the calibrated constants.
Planning figure_job(int heads, int hidden, int layers, int batch) {
  return {{.spec = published_gpt(heads, hidden, layers),
           .sequence_length = 2048,
           .global_batch = batch,
           .types = types_of(Precision::fp16),
           .software = engine_of_2104_04473()},
          {dgx_a100()}};
}
Layout figure_layout(int tensor, int pipeline, int replicas, int batch, int microbatch) {
  return {.tensor = tensor,
          .pipeline = pipeline,
          .replicas = replicas,
          .microbatch_size = microbatch,
          .microbatches = batch / replicas / microbatch,
          .on_accelerators = true};
}

void print(const char* what, const std::vector<double>& values, const char* published) {
  std::printf("%-44s", what);
  for (const double value : values) std::printf(" %6.1f", value);
  std::printf("   published %s\n", published);
}

bool falls(const std::vector<double>& values) {
  return std::is_sorted(values.rbegin(), values.rend());
}
size_t place_of_largest(const std::vector<double>& values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

}  // namespace

TEST_CASE("the matrix efficiency of odd rows predicts the even rows of the weak scaling table") {
  const auto rows = prepared_rows();
  Efficiencies calibrated;
  double least = 1e9;
  for (int percent = 60; percent <= 95; ++percent) {
    const Efficiencies tried{.matrix = percent / 100.0};
    double squares = 0;
    for (size_t i = 0; i < rows.size(); i += 2) squares += std::pow(rows[i].error(tried), 2);
    if (squares >= least) continue;
    least = squares;
    calibrated = tried;
  }
  CHECK(calibrated.matrix == Efficiencies().matrix);  // the default in the code is this calibration's result

  Errors odd, even;
  std::printf("arXiv 2104.04473, table 1: matrix efficiency %.2f fitted to odd rows, link efficiency %.2f assumed\n",
              calibrated.matrix, calibrated.link);
  std::printf("  billions  predicted s  measured s    error  bubble  utilization\n");
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto step = rows[i].estimate(calibrated);
    const double error = step.seconds / rows[i].row.seconds - 1;
    (i % 2 == 0 ? odd : even).add(error);
    std::printf("  %8.1f  %11.2f  %10.2f  %+6.1f%%  %5.1f%%  %10.1f%%%s\n", rows[i].row.billions, step.seconds,
                rows[i].row.seconds, 100 * error, 100 * step.bubble_fraction, 100 * step.utilization,
                i % 2 == 0 ? "" : "  (not used)");
  }
  std::printf("  odd rows: mean %.1f%%, worst %.1f%%; even rows: mean %.1f%%, worst %.1f%%\n", 100 * odd.mean(),
              100 * odd.worst, 100 * even.mean(), 100 * even.worst);
  CHECK(even.mean() < 0.036);
  CHECK(even.worst < 0.088);
}

TEST_CASE("figure 11: weak scaling of the pipeline costs less with a larger batch") {
  const auto rates = [](int batch) {
    std::vector<double> values;
    for (const int p : {1, 2, 4, 8})
      values.push_back(rate(figure_job(128, 20480, 3 * p, batch), figure_layout(8, p, 1, batch, 1)));
    return values;
  };
  const auto small = rates(8), large = rates(128);
  print("figure 11, P 1 2 4 8, batch 8", small, "162 ... 88");
  print("figure 11, P 1 2 4 8, batch 128", large, "178 ... 160");
  CHECK(falls(small));
  CHECK(large.back() / large.front() > 1.4 * small.back() / small.front());
}

TEST_CASE("figures 12 and 18: interleaving pays, most at small batches; so does scattering borders") {
  std::vector<double> plain, interleaved, whole_borders;
  for (const int batch : {12, 24, 36, 48, 60}) {
    auto job = figure_job(96, 12288, 96, batch);
    auto layout = figure_layout(8, 12, 1, batch, 1);
    plain.push_back(rate(job, layout));
    layout.schedule = "interleaved_1f1b";
    layout.chunks_per_stage = 4;  // two blocks each
    interleaved.push_back(rate(job, layout));
    job.workload.software.scatter_gather = false;
    whole_borders.push_back(rate(job, layout));
  }
  print("figure 12, batch 12 ... 60, one chunk", plain, "81 ... 136");
  print("figure 12, interleaved, chunks of 2 blocks", interleaved, "119 ... 147");
  print("figure 18, the same, whole borders sent", whole_borders, "108 ... 131");
  for (size_t i = 0; i < plain.size(); ++i) {
    CHECK(interleaved[i] > plain[i]);
    CHECK(interleaved[i] > whole_borders[i]);
  }
  CHECK(interleaved.front() / plain.front() > interleaved.back() / plain.back());
}

TEST_CASE("figure 13: tensor parallelism fills the node, the pipeline does the rest") {
  for (const int batch : {32, 128}) {
    std::vector<double> values;
    for (const int p : {2, 4, 8, 16, 32})
      values.push_back(rate(figure_job(128, 20480, 32, batch), figure_layout(64 / p, p, 1, batch, 1)));
    print(batch == 32 ? "figure 13, P 2 ... 32 of 64, batch 32" : "figure 13, P 2 ... 32 of 64, batch 128", values,
          batch == 32 ? "peak 142 at 8" : "108, peak 166 at 8, 147");
    CHECK(place_of_largest(values) == 2);
  }
}

TEST_CASE("figures 14 and 15: where the model fits, replicas beat stages and tensor parallelism") {
  const auto by_stages = [](int batch) {
    std::vector<double> values;
    for (const int p : {2, 4, 8, 16, 32})
      values.push_back(rate(figure_job(32, 3840, 32, batch), figure_layout(1, p, 64 / p, batch, 1)));
    return values;
  };
  const auto by_tensor = [](int batch) {
    std::vector<double> values;
    for (const int t : {2, 4, 8, 16, 32})
      values.push_back(rate(figure_job(32, 3840, 32, batch), figure_layout(t, 1, 64 / t, batch, 1)));
    return values;
  };
  const auto p32 = by_stages(32), p512 = by_stages(512), t128 = by_tensor(128), t512 = by_tensor(512);
  print("figure 14, P 2 ... 32 of 64, batch 32", p32, "62 ... 45");
  print("figure 14, batch 512", p512, "150 ... 88");
  print("figure 15, T 2 ... 32 of 64, batch 128", t128, "103 ... 22");
  print("figure 15, batch 512", t512, "127 ... 21");
  CHECK(p32.front() > p32.back());
  CHECK(falls(p512));
  CHECK(falls(t128));
  CHECK(falls(t512));
  CHECK(t512.front() > t128.front());
}

TEST_CASE("figure 16: two samples make the best microbatch") {
  for (const int batch : {128, 512}) {
    std::vector<double> values;
    for (const int size : {1, 2, 4, 8})
      values.push_back(rate(figure_job(128, 15360, 32, batch), figure_layout(8, 8, 1, batch, size)));
    print(batch == 128 ? "figure 16, microbatch 1 2 4 8, batch 128" : "figure 16, microbatch 1 2 4 8, batch 512",
          values, batch == 128 ? "153 156 ... 122" : "160 172 ... 152");
    CHECK(place_of_largest(values) == 1);
    CHECK(values[3] < values[1]);
  }
}

// Without recomputation the paper's engine ran out of memory beyond a batch of 8. By the count of 2205.05198 it needs
// no more than 16 kept microbatches, and these fit into 80 GB, but not into 40 GB.
TEST_CASE("figure 17: recomputing costs a quarter while everything fits, and pays where it does not") {
  std::vector<double> kept, recomputed;
  for (const int batch : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
    auto job = figure_job(96, 12288, 80, batch);
    auto layout = figure_layout(8, 16, 1, batch, 1);
    layout.recompute = recompute_blocks(job.workload.spec, What::layers);
    recomputed.push_back(plan_layout(job, layout).step.samples_per_second);
    layout.recompute = {};
    kept.push_back(plan_layout(job, layout).step.samples_per_second);
    CHECK(kept.back() > 1.2 * recomputed.back());
    job.machines.cluster.memory_bytes /= 2;
    CHECK(plan_layout(job, layout).fit.fits == (batch < 16));
    layout.recompute = recompute_blocks(job.workload.spec, What::layers);
    CHECK(plan_layout(job, layout).fit.fits);
  }
  print("figure 17, samples/s, batch 1 ... 256, each", recomputed, "0.6 ... 7.8");
  print("figure 17, the same, none", kept, "up to 8, there 3.9");
  CHECK(recomputed.back() > 2 * kept[3]);
}

}  // namespace shardline::step_times_test
