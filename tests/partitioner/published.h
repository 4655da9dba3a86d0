// Published measurements that the planner is held against, and the jobs that they are of.
#pragma once
#include "models/gpt2.h"
#include "partitioner/layout.h"

namespace shardline {

// The GPT models of the papers: heads, hidden size, layers; 51200 words, 2048 tokens.
inline ModelSpec published_gpt(int64_t heads, int64_t hidden, int64_t layers, bool sequence_parallel = false,
                               int64_t words = 51200, int64_t length = 2048) {
  Gpt2Config config;
  config.vocab_size = words;
  config.n_positions = length;
  config.n_embd = hidden;
  config.n_layer = layers;
  config.n_head = heads;
  return gpt2_spec(config, sequence_parallel);
}

// The engine of arXiv 2104.04473: gradients in fp16, added by a sweep and reduced after the backwards; unfused
// attention.
inline Software engine_of_2104_04473() {
  return {.fused = false,
          .scatter_gather = true,
          .overlap_reduction = false,
          .overlap_gathering = false,
          .separate_addition = true,
          .gradient_bytes = 2};
}

// arXiv 2104.04473, table 1: weak scaling on DGX A100 80GB, fp16, blocks recomputed.
struct ScalingRow {
  double billions;
  int heads, hidden, layers, tensor, pipeline, microbatch, devices, batch, tflops;
  int replicas, microbatches, chunks;
  double seconds, bubble;
};
inline const std::vector<ScalingRow>& scaling_rows() {
  static const std::vector<ScalingRow> rows = {
      {1.7, 24, 2304, 24, 1, 1, 16, 32, 512, 137, 32, 1, 1, 3.53, 0},
      {3.6, 32, 3072, 30, 2, 1, 16, 64, 512, 138, 32, 1, 1, 3.70, 0},
      {7.5, 32, 4096, 36, 4, 1, 16, 128, 512, 142, 32, 1, 1, 3.70, 0},
      {18.4, 48, 6144, 40, 8, 1, 8, 256, 1024, 135, 32, 4, 1, 9.40, 0},
      {39.1, 64, 8192, 48, 8, 2, 4, 512, 1536, 138, 32, 12, 1, 14.45, 0.0833},
      {76.1, 80, 10240, 60, 8, 4, 2, 1024, 1792, 140, 32, 28, 3, 16.06, 0.0357},
      {145.6, 96, 12288, 80, 8, 8, 2, 1536, 2304, 148, 24, 48, 2, 24.82, 0.0729},
      {310.1, 128, 16384, 96, 8, 16, 1, 1920, 2160, 155, 15, 144, 2, 37.61, 0.0521},
      {529.6, 128, 20480, 105, 8, 35, 1, 2520, 2520, 163, 9, 280, 3, 54.08, 0.0405},
      {1008.0, 160, 25600, 128, 8, 64, 1, 3072, 3072, 163, 6, 512, 1, 102.63, 0.1230},
  };
  return rows;
}

}  // namespace shardline
