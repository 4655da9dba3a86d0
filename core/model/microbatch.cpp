#include "core/model/microbatch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>

#include <map>

#include "core/device/accelerator.h"
#include "core/error.h"

namespace shardline {
namespace {

int64_t begin_of(const Microbatch& batch, int64_t segment) {
  return segment == 0 ? 0 : batch.ends[segment - 1];
}

// [batch, length]: the label of the next position.
at::Tensor next_labels(const at::Tensor& labels) {
  auto next = at::full_like(labels, kNoLabel);
  const int64_t predicted = labels.size(1) - 1;
  if (predicted > 0) next.narrow(1, 0, predicted).copy_(labels.narrow(1, 1, predicted));
  return next;
}

}  // namespace

int64_t Microbatch::length() const {
  SL_ASSERT(is_rectangular, segments(), " segments of different lengths");
  return ends.empty() ? 0 : ends[0];
}

Microbatch causal_microbatch(const at::Tensor& ids, const at::Tensor& labels, const at::Tensor& samples,
                             int64_t first_position) {
  const int64_t batch = ids.size(0), length = ids.size(1);
  Microbatch made{.ids = ids.reshape({-1}), .is_rectangular = true, .position_count = first_position + length};
  if (labels.defined()) made.labels = next_labels(labels).view({-1});
  for (int64_t i = 1; i <= batch && length > 0; ++i) made.ends.push_back(i * length);
  if (ids.is_meta()) {  // only sizes matter
    made.positions = made.samples = made.places = made.ids;
    made.segment_samples = made.segment_places = samples;
    return made;
  }
  made.positions = at::arange(first_position, first_position + length, ids.options())
                       .expand({batch, length})
                       .contiguous()
                       .view({-1});
  made.places = made.positions;
  if (!samples.defined()) return made;
  made.samples = samples.repeat_interleave(length);
  made.segment_samples = samples.contiguous();
  made.segment_places = at::full_like(made.segment_samples, first_position);
  return made;
}

Microbatch on_device(const Microbatch& host, at::Device device) {
  if (host.ids.device() == device) return host;
  Microbatch moved = host;
  // Members that share one tensor, such as positions and places, still share one afterwards.
  std::map<const at::TensorImpl*, std::vector<at::Tensor*>> places_of;
  std::vector<at::Tensor> flat;
  for (at::Tensor* tensor : {&moved.ids, &moved.labels, &moved.positions, &moved.samples, &moved.places,
                             &moved.segment_samples, &moved.segment_places, &moved.types}) {
    if (!tensor->defined()) continue;
    auto& places = places_of[tensor->unsafeGetTensorImpl()];
    if (places.empty()) flat.push_back(*tensor);
    places.push_back(tensor);
  }
  const at::Tensor all = on_device(at::cat(flat), device);
  int64_t begin = 0;
  for (const at::Tensor& tensor : flat) {
    const at::Tensor part = all.narrow(0, begin, tensor.numel());
    begin += tensor.numel();
    for (at::Tensor* place : places_of.at(tensor.unsafeGetTensorImpl())) *place = part;
  }
  for (at::Tensor* tensor : {&moved.features, &moved.targets})
    if (tensor->defined()) *tensor = on_device(*tensor, device);
  for (auto& [name, tensor] : moved.columns) tensor = on_device(tensor, device);
  return moved;
}

Microbatch part_of(const Microbatch& whole, const Range& segments) {
  const int64_t begin = segments.length == 0 ? 0 : begin_of(whole, segments.begin),
                rows = segments.length == 0 ? 0 : whole.ends[segments.end() - 1] - begin;
  const auto narrowed = [](const at::Tensor& all, int64_t first, int64_t count) {
    return all.defined() ? all.narrow(0, first, count) : all;
  };
  const auto of_rows = [&](const at::Tensor& all) { return narrowed(all, begin, rows); };
  const auto of_segments = [&](const at::Tensor& all) { return narrowed(all, segments.begin, segments.length); };
  Microbatch part{.ids = of_rows(whole.ids),
                  .labels = of_rows(whole.labels),
                  .positions = of_rows(whole.positions),
                  .samples = of_rows(whole.samples),
                  .places = of_rows(whole.places),
                  .segment_samples = of_segments(whole.segment_samples),
                  .segment_places = of_segments(whole.segment_places),
                  .types = of_rows(whole.types),
                  .features = of_rows(whole.features),
                  .targets = of_segments(whole.targets),
                  .is_rectangular = whole.is_rectangular,
                  .position_count = whole.position_count};
  for (const auto& [name, tensor] : whole.columns) part.columns.emplace(name, of_segments(tensor));
  for (int64_t i = segments.begin; i < segments.end(); ++i) {
    part.ends.push_back(whole.ends[i] - begin);
    if (!whole.target_begins.empty()) part.target_begins.push_back(whole.target_begins[i] - begin);
  }
  return part;
}

}  // namespace shardline
