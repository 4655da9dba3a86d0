#include "tests/parity/bit_equality.h"

#include "core/error.h"

namespace shardline::parity {

std::vector<Twins> equal_twins() {
  const Point deep = {.d = 2,
                      .p = 2,
                      .t = 2,
                      .optimize = "memory",
                      .dtype = "float32",
                      .microbatches = 3,
                      .dropout = true,
                      .short_batch = true};
  const Point one = {.dtype = "float32", .microbatches = 4, .dropout = true};
  std::vector<Twins> twins = {{"the same run twice", deep, deep}};
  for (const int stages : {2, 3, 4})
    for (const bool tied : {true, false}) {
      Point alone = one, pipeline = one;
      alone.tied = pipeline.tied = tied;
      pipeline.p = stages;
      twins.push_back({cat(stages, " stages, ", tied ? "tied" : "untied", " head: one process"), alone, pipeline});
    }
  for (const char* optim : {"sgd", "adafactor"}) {
    Point alone = one, pipeline = one;
    alone.optim = pipeline.optim = optim;
    pipeline.p = 3;
    twins.push_back({cat("3 stages, ", optim, ": one process"), alone, pipeline});
  }
  for (const char* checkpointing : {"none", "selective", "each"}) {
    Point alone = one, pipeline = one;
    alone.model = pipeline.model = "gptj";
    pipeline.p = 3;
    pipeline.pipeline = "zb_h1";
    pipeline.checkpointing = checkpointing;
    twins.push_back({cat("GPT-J, zb_h1 on 3 stages, ", checkpointing, ": one process"), alone, pipeline});
  }
  Point flat = deep;
  flat.p = 1;
  twins.push_back({"D 2, T 2, memory, with 2 stages: with 1", flat, deep});

  Point interleaved = one, simple = one, active = one;
  interleaved.p = simple.p = active.p = 3;
  simple.pipeline = "simple";
  active.active = 1;
  for (const char* schedule : {"simple", "interleaved_1f1b v2", "zb_h1", "zb_h2", "zbv", "dualpipev"}) {
    Point other = interleaved;
    other.pipeline = schedule;
    twins.push_back({cat(schedule, ": interleaved (1F1B)"), interleaved, other});
  }
  twins.push_back({"active_microbatches 1: unset", interleaved, active});

  for (const char* checkpointing : {"each", "group_2", "contiguous", "selective"})
    for (const Point& keeping : {one, interleaved, simple, deep}) {
      Point recomputed = keeping;
      recomputed.checkpointing = checkpointing;
      if (keeping.pipeline == "simple" || keeping.d > 1) recomputed.offload = "checkpointed";
      twins.push_back({cat(checkpointing, ", P ", keeping.p, ", ", keeping.pipeline,
                           recomputed.offload == "off" ? "" : ", offload", ": keeping"),
                       keeping, recomputed});
    }
  for (const char* schedule : {"interleaved", "simple", "interleaved_1f1b v2", "zb_h1", "zb_h2", "zbv", "dualpipev"})
    for (const char* checkpointing : {"none", "selective"}) {
      Point away = interleaved;
      away.pipeline = schedule;
      away.checkpointing = checkpointing;
      away.offload = "all";
      twins.push_back(
          {cat(schedule, ", ", checkpointing, ", all kept activations offloaded: keeping"), interleaved, away});
    }
  for (const char* checkpointing : {"none", "each", "contiguous", "selective"}) {
    Point away = deep;
    away.checkpointing = checkpointing;
    away.offload = "all";
    twins.push_back(
        {cat("D 2, P 2, T 2, memory, ", checkpointing, ", all kept activations offloaded: keeping"), deep, away});
  }

  Point accumulated = one;
  accumulated.microbatches = accumulated.accumulation = 2;
  twins.push_back({"2 microbatches x 2 accumulation steps: 4 microbatches", one, accumulated});
  Point dealt = deep;
  dealt.sharding = "ZeRO-1";
  twins.push_back({"ZeRO-1: plain data parallelism", deep, dealt});
  for (const char* sharding : {"ZeRO-1", "ZeRO-2", "ZeRO-3", "ZeRO-3 weights"})
    for (const char* pipeline : {"interleaved", "zb_h1"}) {
      Point plain = deep;
      plain.microbatches = 1;
      plain.pipeline = pipeline;
      dealt = plain;
      dealt.sharding = sharding;
      twins.push_back({cat(sharding, ", ", pipeline, ", one microbatch: plain data parallelism"), plain, dealt});
    }
  // Points with replicas and several microbatches. Where gradients are sharded (ZeRO-2 and -3) each microbatch's is
  // reduced by itself, but `simple` has those of the head and the loss of all microbatches in one (docs/schedules.md).
  const auto add_schedules = [&](const char* sharding, const std::vector<const char*>& schedules) {
    Point base = interleaved;
    base.d = 2;
    base.microbatches = 3;
    base.sharding = sharding;
    for (const char* schedule : schedules) {
      Point other = base;
      other.pipeline = schedule;
      twins.push_back({cat(schedule, ", D 2, ", sharding, ": interleaved (1F1B)"), base, other});
    }
  };
  add_schedules("none", {"simple", "zbv"});
  add_schedules("ZeRO-1", {"simple", "zb_h2"});
  add_schedules("ZeRO-2", {"interleaved_1f1b v2", "zb_h1", "zb_h2", "zbv", "dualpipev"});
  add_schedules("ZeRO-3", {"interleaved_1f1b v2", "zb_h1", "zb_h2", "zbv", "dualpipev"});
  for (const char* dtype : {"bf16", "fp16", "bf16 fp32 residuals"}) {
    Point half = one;
    half.dtype = dtype;
    twins.push_back({cat(dtype, ": the same run twice"), half, half});
    Point pipeline = half, recomputed = half, away = half;
    pipeline.p = 3;
    twins.push_back({cat(dtype, ", 3 stages: one process"), half, pipeline});
    pipeline.pipeline = "zbv";
    twins.push_back({cat(dtype, ", zbv on 3 stages: one process"), half, pipeline});
    recomputed.checkpointing = "each", recomputed.offload = "checkpointed";
    twins.push_back({cat(dtype, ", each, offload: keeping"), half, recomputed});
    recomputed.checkpointing = "selective", recomputed.offload = "off";
    twins.push_back({cat(dtype, ", selective: keeping"), half, recomputed});
    away.offload = "all";
    twins.push_back({cat(dtype, ", all kept activations offloaded: keeping"), half, away});
    Point plain = deep;
    plain.dtype = dtype;
    dealt = plain;
    dealt.sharding = "ZeRO-1";
    twins.push_back({cat(dtype, ", ZeRO-1: plain data parallelism"), plain, dealt});
    plain.microbatches = 1;
    for (const char* sharding : {"ZeRO-2", "ZeRO-3", "ZeRO-3 weights"}) {
      dealt = plain;
      dealt.sharding = sharding;
      twins.push_back({cat(dtype, ", ", sharding, ", one microbatch: plain data parallelism"), plain, dealt});
    }
  }
  // The other placements number T before D, so sums over both add in a different order.
  for (const char* placement : {"DTP", "PDT"}) {
    Point placed = deep;
    placed.placement = placement;
    twins.push_back({cat("placement ", placement, ": DPT"), deep, placed});
  }
  return twins;
}

}  // namespace shardline::parity
