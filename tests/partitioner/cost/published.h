// Published measurements that the planner is compared with, and the jobs that were measured.
#pragma once
#include "models/families/gpt2.h"
#include "models/graph/dry_run.h"
#include "partitioner/layout/layout.h"

namespace shardline {

// GPT models of the papers: heads, hidden size, layers; 51200 words, 2048 tokens.
inline ModelSpec published_gpt(int64_t heads, int64_t hidden, int64_t layers, bool sequence_parallel = false,
                               int64_t words = 51200, int64_t length = 2048) {
  Gpt2Config config;
  config.vocab_size = words;
  config.n_positions = length;
  config.n_embd = hidden;
  config.n_layer = layers;
  config.n_head = heads;
  ModelSpec spec = gpt2_spec(config, {}, sequence_parallel);
  add_costs_of_ops(spec);
  return spec;
}

// The engine of arXiv 2104.04473: gradients in fp16, added by a sweep and reduced after the backward passes; unfused
// attention; nothing hides communication over T. An update copies gradients to fp32 (6 bytes a parameter), unscales
// them and looks for overflows (8), takes the norm (4), clips (8), updates (28), and copies the values to fp16 (6): 60,
// of which 30 are those of a norm and an update that read fp16 gradients and write the values themselves.
inline Software engine_of_2104_04473() {
  return {.fused = false,
          .scatter_gather = true,
          .overlap_reduction = false,
          .overlap_tensor = false,
          .separate_addition = true,
          .gradient_bytes = 2,
          .extra_update_bytes = 30};
}

// The engine of arXiv 2205.05198: unfused attention, whose core selective recomputation runs again; gradients in fp32
// (its figure 1 counts 18 bytes a parameter), to which products add; a linear's backward hides communication over T. An
// update unscales gradients (8 bytes a parameter), takes the norm (4), clips (8), updates (28), and copies the values
// (6): 54, of which 34 are those of a norm and an update that writes the values itself.
inline Software engine_of_2205_05198() {
  return {.fused = false,
          .scatter_gather = true,
          .overlap_reduction = false,
          .gradient_bytes = 4,
          .extra_update_bytes = 20};
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

// arXiv 2205.05198, tables 3 and 5: seconds of a step on DGX A100 80GB, one replica, T = 8, fp16, with all blocks
// recomputed, and with selective recomputation and sequence parallelism.
struct RecomputeRow {
  const char* name;
  int heads, hidden, layers, pipeline, chunks, microbatch, batch;
  double all_recomputed, selective;
};
inline const std::vector<RecomputeRow>& recompute_rows() {
  static const std::vector<RecomputeRow> rows = {
      {"22B", 64, 6144, 48, 1, 1, 4, 4, 1.42, 1.10},
      {"175B", 96, 12288, 96, 8, 3, 1, 64, 18.13, 13.75},
      {"530B", 128, 20480, 105, 35, 3, 1, 280, 49.05, 37.83},
      {"1T", 160, 25600, 128, 64, 1, 1, 512, 94.42, 71.49},
  };
  return rows;
}

// The same paper, table 4: milliseconds of one block of the 22B model. Backward times include what is recomputed.
struct BlockRow {
  const char* name;
  bool sequence_parallel;
  Recompute::What recomputed;
  double forward, backward;
};
inline const std::vector<BlockRow>& block_rows() {
  static const std::vector<BlockRow> rows = {
      {"nothing recomputed", false, Recompute::What::nothing, 7.7, 11.9},
      {"sequence parallel", true, Recompute::What::nothing, 7.2, 11.8},
      {"all recomputed", false, Recompute::What::layers, 7.7, 19.5},
      {"selective", false, Recompute::What::attention, 7.7, 13.2},
      {"selective, sequence parallel", true, Recompute::What::attention, 7.2, 13.1},
  };
  return rows;
}

}  // namespace shardline
