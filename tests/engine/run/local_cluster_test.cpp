#include "engine/run/local_cluster.h"

#include "tests/catch.h"

namespace shardline::local_cluster_test {

TEST_CASE("the rates computed from a GPU's properties are those of its data sheet", "[engine][cluster]") {
  struct Sheet {
    GpuFacts gpu;
    double fp32, fp16, bf16;  // TFLOP/s; bf16 0: the GPU has no bf16
  };
  const Sheet sheets[] = {
      {{"V100-SXM2", 32e9, 900e9, 1.53e9, 80, 70}, 15.7, 125, 0},
      {{"A100-SXM4", 40e9, 1555e9, 1.41e9, 108, 80}, 19.5, 312, 312},
      {{"RTX 3090", 24e9, 936e9, 1.695e9, 82, 86}, 35.6, 71, 71},
      {{"RTX 4090", 24e9, 1008e9, 2.52e9, 128, 89}, 82.6, 165.2, 165.2},
      {{"H100-SXM5", 80e9, 3350e9, 1.98e9, 132, 90}, 66.9, 989.4, 989.4},
  };
  constexpr double kStatedClock = 0.09;  // Hopper's tensor cores are stated for 1.83 GHz
  for (const auto& [gpu, fp32, fp16, bf16] : sheets) {
    INFO(gpu.name);
    const Cluster cluster = local_gpu_cluster(gpu, 8, 8, 2);
    CHECK(cluster.device == gpu.name);
    CHECK(cluster.devices() == 16);
    CHECK(cluster.memory_bytes == gpu.memory_bytes);
    CHECK(cluster.memory_bytes_per_second == gpu.memory_bytes_per_second);
    CHECK(cluster.multiprocessors == gpu.multiprocessors);
    CHECK(cluster.peak(Precision::fp32) / 1e12 == Approx(fp32).epsilon(0.01));
    CHECK(cluster.peak(Precision::fp16) / 1e12 == Approx(fp16).epsilon(kStatedClock));
    if (bf16 > 0)
      CHECK(cluster.peak(Precision::bf16) / 1e12 == Approx(bf16).epsilon(kStatedClock));
    else
      CHECK_FALSE(cluster.peak_flops.contains(Precision::bf16));
  }
}

TEST_CASE("ranks that share a GPU share its memory and its rates", "[engine][cluster]") {
  const GpuFacts gpu = {"H200", 141e9, 4800e9, 1.83e9, 132, 90};
  const Cluster alone = local_gpu_cluster(gpu, 2, 2), shared = local_gpu_cluster(gpu, 2, 8);
  CHECK(shared.devices() == 8);
  CHECK(shared.memory_bytes == alone.memory_bytes / 4);
  CHECK(shared.memory_bytes_per_second == alone.memory_bytes_per_second / 4);
  CHECK(shared.peak(Precision::bf16) == alone.peak(Precision::bf16) / 4);
}

}  // namespace shardline::local_cluster_test
