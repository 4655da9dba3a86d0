#include "models/program/program_inputs.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "tensor_parallel/kernels/aten/aten_random.h"

namespace shardline {
namespace {

constexpr std::array kArguments = {"input_ids", "labels", "attention_mask", "position_ids", "token_type_ids"};

// Labels of the tokens themselves: the label of a row is that of the next token in its segment.
at::Tensor own_labels(const Microbatch& batch, const RowGrid& grid) {
  const at::Tensor next = grid.spread(batch.labels, kNoLabel);
  const auto none = at::full({grid.segments(), 1}, kNoLabel, next.options());
  return at::cat({none, next.narrow(1, 0, grid.length() - 1)}, 1);
}

}  // namespace

RowGrid::RowGrid(const Microbatch& batch) : segments_(batch.segments()), length_(0) {
  std::vector<int64_t> places;
  int64_t begin = 0;
  for (const int64_t end : batch.ends) {
    length_ = std::max(length_, end - begin);
    begin = end;
  }
  if (segments_ * length_ == batch.tokens()) return;
  places.reserve(batch.tokens());
  begin = 0;
  for (int64_t segment = 0; segment < segments_; ++segment) {
    for (int64_t row = begin; row < batch.ends[segment]; ++row) places.push_back(segment * length_ + row - begin);
    begin = batch.ends[segment];
  }
  const auto on_host = at::from_blob(places.data(), {std::ssize(places)}, at::kLong);
  places_ = on_host.clone().to(batch.ids.device());
}

at::Tensor RowGrid::spread(const at::Tensor& rows, int64_t padding) const {
  auto sizes = rows.sizes().vec();
  sizes.insert(sizes.begin() + 1, length_);
  sizes[0] = segments_;
  if (!is_padded()) return rows.view(sizes);
  auto flat = rows.sizes().vec();
  flat[0] = segments_ * length_;
  return at::full(flat, padding, rows.options().requires_grad(false)).index_copy(0, places_, rows).view(sizes);
}

at::Tensor RowGrid::gathered(const at::Tensor& grid) const {
  const auto rows = grid.flatten(0, 1);
  return is_padded() ? rows.index_select(0, places_) : rows;
}

bool is_program_argument(const std::string& name) {
  return std::ranges::find(kArguments, name) != kArguments.end();
}

at::Tensor program_argument(const std::string& name, const Microbatch& batch, const RowGrid& grid) {
  if (name == "input_ids") return grid.spread(batch.ids);
  if (name == "attention_mask") return grid.spread(at::ones_like(batch.ids));
  if (name == "position_ids") return grid.spread(batch.positions);
  if (name == "token_type_ids") return grid.spread(batch.types.defined() ? batch.types : at::zeros_like(batch.ids));
  SL_ASSERT(name == "labels", "the argument ", name, " has passed the checks");
  SL_ASSERT(batch.labels.defined(), "a loss without labels");
  return own_labels(batch, grid);
}

DropoutRows grid_rows(DropoutRows rows, const RowGrid& grid) {
  rows.samples = grid.spread(rows.samples).flatten();
  rows.places = grid.spread(rows.places).flatten();
  rows.first_token = 0;
  rows.tokens = rows.samples.numel();
  return rows;
}

at::Tensor dropped_pairs(const at::Tensor& x, const DropoutRows& rows, const Microbatch& batch,
                         const at::Tensor& own_heads) {
  // Numbers of elements are below 2^50: 1024 heads of 2^20 places.
  constexpr int64_t kPlaces = int64_t{1} << 20, kHeads = 1024;
  const int64_t heads = x.size(1), length = x.size(2);
  if (heads > kHeads || length > kPlaces || x.size(3) != length)
    throw RunError(cat("dropout on a tensor of sizes ", x.sizes(), " cannot be drawn"));
  const auto like = batch.ids.options();
  const auto sample = batch.segment_samples.view({-1, 1, 1, 1});
  const auto place = batch.segment_places.view({-1, 1}) + at::arange(length, like);
  const auto numbers = own_heads.defined() ? own_heads : at::arange(heads, like);
  const auto element =
      (numbers.view({-1, 1, 1}) * kPlaces + place.view({-1, 1, length, 1})) * kPlaces + place.view({-1, 1, 1, length});
  const double keeps = 1 - rows.probability;
  const auto kept = aten::random_keep({.seed = rows.seed, .op = rows.op, .step = rows.step}, sample, element, keeps);
  return x * kept.to(x.scalar_type()).div_(keeps);
}

at::Tensor dropped_features(const at::Tensor& x, const DropoutRows& rows, const at::Tensor& features, int64_t all) {
  const double keeps = 1 - rows.probability;
  const auto kept = aten::random_keep({.seed = rows.seed, .op = rows.op, .step = rows.step}, rows.samples.unsqueeze(1),
                                      rows.places.unsqueeze(1) * all + features, keeps);
  return x * kept.to(x.scalar_type()).div_(keeps).view(x.sizes());
}

}  // namespace shardline
