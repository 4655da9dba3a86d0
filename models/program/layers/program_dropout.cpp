#include "models/program/layers/program_dropout.h"

#include <algorithm>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "models/program/layers/part_run.h"
#include "models/program/operators.h"
#include "tensor_parallel/ops/elementwise.h"

namespace shardline {

DropoutSite site_of(const Program& program, const GraphNode& node) {
  using Kind = DropoutSite::Kind;
  const auto value_of = [&](int argument) { return node.arguments[argument].value; };
  // Without evidence, dimensions are what their sizes suggest.
  const auto counts = [&](int argument, size_t dimension, Counts what) {
    return program.counts(value_of(argument), dimension, what).value_or(true);
  };
  const auto is_target = [&](int argument, size_t dimension) { return counts(argument, dimension, Counts::target); };
  const auto is_length = [&](int argument, size_t dimension) {
    return counts(argument, dimension, Counts::source) || is_target(argument, dimension);
  };
  const bool attends = node.name == kAttention;
  if (value_of(0) < 0 || (attends && value_of(1) < 0)) return {};
  const auto& sizes = program.graph().values[value_of(0)].sizes;
  const auto counts_samples = [&](size_t dimension) { return program.counts(value_of(0), dimension, Counts::samples); };
  const bool is_length_first = !attends && sizes.size() == 3 && counts_samples(0) == false &&
                               counts_samples(1) == true && is_length(0, 0) && sizes[2].expression.empty();
  if (is_length_first) return {Kind::rows, is_target(0, 0), false, true};
  if (sizes.empty() || !counts(0, 0, Counts::samples)) return {};
  const int keys = attends ? 1 : 0;
  const size_t of_keys = attends ? 2 : 3;
  const bool has_keys = program.graph().values[value_of(keys)].sizes.size() > of_keys;
  if (sizes.size() == 4 && has_keys && is_length(0, 2) && is_length(keys, of_keys))
    return {Kind::pairs, is_target(0, 2), is_target(keys, of_keys)};
  if (attends) return {};
  if (sizes.size() == 3 && is_length(0, 1) && sizes[2].expression.empty()) return {Kind::rows, is_target(0, 1)};
  if (sizes.size() == 2 && sizes[1].expression.empty()) return {Kind::segments};
  return {};
}

at::Tensor dropped(const TensorParallel& tp, const at::Tensor& x, DropoutRows rows, const DropoutSite& site,
                   const ProgramBatch& batch, const DividedDimension* part) {
  if (site.is_length_first) {
    const DropoutSite samples_first{site.kind, site.of_target};
    return dropped(tp, x.transpose(0, 1), rows, samples_first, batch, part).transpose(0, 1).contiguous();
  }
  const auto grid = [&](bool of_target) -> const RowGrid& { return of_target ? batch.target : batch.source; };
  const bool is_pairs = site.kind == DropoutSite::Kind::pairs;
  SL_ASSERT(!part || part->dimension == (is_pairs ? 1 : x.dim() - 1), "dropout of divided rows");
  if (is_pairs)
    return dropped_pairs(x, rows, batch.batch, grid(site.of_target), grid(site.with_target),
                         part ? own_places(tp, *part, x) : at::Tensor());
  if (site.kind == DropoutSite::Kind::segments) {
    rows.samples = batch.source.with_repeated(batch.batch.segment_samples);
    rows.places = batch.source.with_repeated(batch.batch.segment_places);
    rows.first_token = 0;
    rows.tokens = x.size(0);
  } else {
    rows = grid_rows(rows, grid(site.of_target));
  }
  if (part) return dropped_features(x, rows, own_places(tp, *part, x), part->size());
  return bias_dropout_add(tp, x.reshape({rows.tokens, -1}).contiguous(), rows.tokens, nullptr, {}, rows)
      .view(x.sizes());
}

std::optional<AttentionDropout> attention_dropout(const TensorParallel& tp, const DropoutRows& rows,
                                                  const DropoutSite& site, const ProgramBatch& batch,
                                                  const DividedDimension* part) {
  const Microbatch& all = batch.batch;
  const RowGrid& grid = site.of_target ? batch.target : batch.source;
  const bool is_square = site.kind == DropoutSite::Kind::pairs && site.of_target == site.with_target;
  if (!is_square || grid.is_padded() || all.tokens() > kDroppedPlaces) return {};
  if (part && (part->before > 1 || !part->sections.empty())) return {};  // its heads are not adjacent
  AttentionDropout dropout{.seed = rows.seed,
                           .op = rows.op,
                           .step = rows.step,
                           .probability = rows.probability,
                           .samples = grid.with_repeated(all.segment_samples),
                           .max_positions = kDroppedPlaces};
  if (part) dropout.first_head = split_range(part->count, tp.size(), tp.rank()).begin * part->after;
  if (all.is_rectangular && !site.of_target) return dropout;
  if (is_accelerator(all.ids.device())) return {};  // its kernels begin each sample at place 0
  dropout.first_places = grid.spread(all.places).select(1, 0).contiguous();
  return dropout;
}

}  // namespace shardline
