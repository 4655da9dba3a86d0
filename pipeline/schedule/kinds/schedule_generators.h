// Schedules from the literature with several chunks a stage or split backward passes; simple, 1F1B and forward ones are
// in schedule.h. p stages, m microbatches; F, B and W are the forward, the input gradient and the weight gradient of
// what one stage holds. docs/schedules.md shows all of them.
//
// active_microbatches, where given: 0 for what the schedule needs; at least 1, which every schedule here can do with. A
// stage then has no more microbatches between their first forward and the end of their backward (with weights, where
// these are split off), and forwards are delayed. All throw ConfigError.
#pragma once
#include "pipeline/schedule/schedule.h"

namespace shardline {

// Interleaved 1F1B (Narayanan et al. 2021, arXiv 2104.04473, 2.2.2): stage s has the v chunks s, s + p, .., and goes
// through the chunks with p microbatches at a time; v = 1 is 1F1B. Bubble (p-1)(F+B+W)/v where p divides m; elsewhere
// the groups are as even as p or more microbatches each allow, or all m. Live: at most 2(p-1) + (v-1)p + 1 of the v*m
// (microbatch, chunk) pairs, with larger groups of g microbatches g for p.
Schedule interleaved_1f1b(int stages, int microbatches, int chunks_per_stage, int active_microbatches);

// ZB-H1 and ZB-H2 (Qi et al. 2023, arXiv 2401.10241, 2): 1F1B, but weight gradients come later: stage s lags s of them
// behind its input gradients in ZB-H1, which keeps 1F1B's live activations p - s, and p pairs of activations and
// deferred weights together. Bubble (p-1)(F+B-W) for m >= p.
Schedule zb_h1(int stages, int microbatches, int active_microbatches);

// In ZB-H2 stage s runs 2(p-s) - 1 forwards ahead and lags 2s weight gradients behind: live 2p - 1 - 2s, with deferred
// weights 2p - 1. For m >= 2p - 1, and F = B = W, no stage waits between its first and its last instruction; stages
// start and end one after the other, so between two barriers there are p - 1 further units. Bubble (p-1)(F+B-2W).
Schedule zb_h2(int stages, int microbatches, int active_microbatches);

// ZB-V (Qi et al. 2024, arXiv 2405.15362, 4): 2p chunks that go down the stages and up again (stage s has s and
// 2p-1-s), so that the loss and the embedding share a stage and live activations are equal on all stages: at most 2p
// chunks, as much as 1F1B's first stage. Like ZB-H2 for m >= 2p - 1; fewer microbatches leave its places empty.
Schedule zbv(int stages, int microbatches, int active_microbatches);

// DualPipeV (DeepSeek-AI 2025, the V form of DualPipe in arXiv 2412.19437, 3.2.1): chunks as in ZB-V; in the middle the
// forward of one chunk is paired with the whole backward of the other. With m >= 2p and pairs that run as one (F&B, B
// whole, all of one chunk) the bubble is (p-1)(F&B+B-3W); a pair here is one after the other, which passes results on
// earlier and loses no more. Fewer microbatches leave places empty. Live: at most 2p + 1 chunks.
Schedule dualpipev(int stages, int microbatches, int active_microbatches);

// Every microbatch goes forward through chunks that lie anyhow; those of one stage alternate, later ones first.
Schedule forward_schedule(const std::vector<int>& stage_of_chunk, int stages, int microbatches);

}  // namespace shardline
