// Schedules from the literature with several chunks per stage or split backward passes. schedule.h has simple, 1F1B and
// forward schedules; schedule_choice.h lists the kinds. p stages, m microbatches; F, B and W are the times of forward,
// input gradient and weight gradient of everything on one stage. docs/schedules.md shows all of them.
//
// active_microbatches: 0 for as many as the schedule needs; 1 is enough for every schedule with this argument. A stage
// then has at most this many microbatches between their first forward and the end of their backward (including weights,
// if these are split off), and forwards are delayed. All throw ConfigError.
#pragma once
#include "pipeline/schedule/schedule.h"

namespace shardline {

// Interleaved 1F1B (Narayanan et al. 2021, arXiv 2104.04473, 2.2.2): stage s has the v chunks s, s + p, .., and
// processes p microbatches at a time in each of them; v = 1 is 1F1B. The bubble is (p-1)(F+B+W)/v if p divides m;
// otherwise the groups are as equal as possible with at least p microbatches each (or all m). Live: at most 2(p-1) +
// (v-1)p + 1 of the v*m (microbatch, chunk) pairs; with larger groups of g microbatches, g replaces p.
Schedule interleaved_1f1b(int stages, int microbatches, int chunks_per_stage, int active_microbatches);

// ZB-H1 and ZB-H2 (Qi et al. 2023, arXiv 2401.10241, 2): 1F1B with deferred weight gradients. In ZB-H1 the weight
// gradients of stage s lag s behind its input gradients. Live activations are as in 1F1B, p - s; together with deferred
// weight gradients, p microbatches are kept. The bubble is (p-1)(F+B-W) for m >= p.
Schedule zb_h1(int stages, int microbatches, int active_microbatches);

// In ZB-H2 stage s runs 2(p-s) - 1 forwards ahead, and its weight gradients lag by 2s: 2p - 1 - 2s are live, or 2p - 1
// including deferred weights. For m >= 2p - 1 and F = B = W, no stage waits between its first and its last instruction;
// stages start and end one after another, so there are p - 1 further units between two barriers. The bubble is
// (p-1)(F+B-2W).
Schedule zb_h2(int stages, int microbatches, int active_microbatches);

// ZB-V (Qi et al. 2024, arXiv 2405.15362, 4): 2p chunks that go down the stages and up again (stage s has s and
// 2p-1-s), so that the loss and the embedding share a stage, and live activations are equal on all stages: at most 2p
// chunks, as many as on 1F1B's first stage. For m >= 2p - 1 it is like ZB-H2; with fewer microbatches, some of its
// slots are empty.
Schedule zbv(int stages, int microbatches, int active_microbatches);

// DualPipeV (DeepSeek-AI 2025, the V form of DualPipe in arXiv 2412.19437, 3.2.1): chunks as in ZB-V; in the middle,
// the forward of one chunk is paired with the whole backward of the other. With m >= 2p and pairs that run as one (F&B,
// B whole, all of one chunk) the bubble is (p-1)(F&B+B-3W); here the two run one after the other, which sends results
// earlier and loses no more. With fewer microbatches, some slots are empty. Live: at most 2p + 1 chunks.
Schedule dualpipev(int stages, int microbatches, int active_microbatches);

// Every microbatch runs forward through chunks on any stages; chunks of one stage alternate, later ones first.
Schedule forward_schedule(const std::vector<int>& stage_of_chunk, int stages, int microbatches);

}  // namespace shardline
