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
  const auto sizes_of = [&](int argument) { return program.graph().values[node.arguments[argument].value].sizes; };
  const auto is_length = [&](const GraphSize& size) {
    return size == program.source_length || (program.has_target() && size == program.target_length);
  };
  const auto is_target = [&](const GraphSize& size) { return program.has_target() && size == program.target_length; };
  const auto is_batch = [&](const GraphSize& size) {
    return std::ranges::any_of(program.graph().inputs, [&](const GraphInput& input) {
      const auto& of_input = program.graph().values[input.value].sizes;
      return input.kind == GraphInput::Kind::user && !of_input.empty() && of_input[0] == size;
    });
  };
  const bool attends = node.name == kAttention;
  if (node.arguments[0].value < 0 || (attends && node.arguments[1].value < 0)) return {};
  const auto sizes = sizes_of(0), others = attends ? sizes_of(1) : sizes;
  if (sizes.empty() || !is_batch(sizes[0])) return {};
  if (sizes.size() == 4) {
    const GraphSize &queries = sizes[2], &keys = others[attends ? 2 : 3];
    if (is_length(queries) && is_length(keys)) return {Kind::pairs, is_target(queries), is_target(keys)};
  }
  if (attends) return {};
  if (sizes.size() == 3 && is_length(sizes[1]) && sizes[2].expression.empty()) return {Kind::rows, is_target(sizes[1])};
  if (sizes.size() == 2 && sizes[1].expression.empty()) return {Kind::segments};
  return {};
}

at::Tensor dropped(const TensorParallel& tp, const at::Tensor& x, DropoutRows rows, const DropoutSite& site,
                   const ProgramBatch& batch, const DividedDimension* part) {
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
  return bias_dropout_add(tp, x.reshape({rows.tokens, -1}), rows.tokens, nullptr, {}, rows).view(x.sizes());
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
