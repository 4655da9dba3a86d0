#include "optim/flat_buffer.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "core/caching_allocator.h"

namespace shardline {
namespace {

constexpr int64_t kAlignmentBytes = 64;

int64_t numel_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

Sharing sharing_of(const ParamSpec& spec, int t_degree) {
  if (spec.split_dim >= 0 && t_degree > 1) return Sharing::split;
  return spec.partial_over_t && t_degree > 1 ? Sharing::partial : Sharing::complete;
}

FlatBuffer::FlatBuffer(const std::vector<NamedParam>& params, int t, int t_degree, at::ScalarType dtype,
                       at::Device device) {
  const auto key = [&](const NamedParam& param) {
    return std::tuple(!param.spec->trainable, sharing_of(*param.spec, t_degree), param.spec->decays);
  };
  std::vector<size_t> order(params.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(params[a]) < key(params[b]); });

  const int64_t alignment = kAlignmentBytes / static_cast<int64_t>(c10::elementSize(dtype));
  int64_t end = 0;
  places_.resize(params.size());
  for (size_t n = 0; n < order.size(); ++n) {
    const NamedParam& param = params[order[n]];
    if (n == 0 || key(param) != key(params[order[n - 1]]))
      segments_.push_back({sharing_of(*param.spec, t_degree), param.spec->decays, param.spec->trainable, end, 0});
    places_[order[n]] = {param, end, param.spec->local_shape(t, t_degree)};
    end += (numel_of(places_[order[n]].shape) + alignment - 1) / alignment * alignment;
    segments_.back().length = end - segments_.back().begin;
  }
  const MemoryScope scope(MemoryClass::weights);
  values_ = at::zeros({end}, at::TensorOptions().dtype(dtype).device(device));
}

int64_t FlatBuffer::trainable_elements() const {
  int64_t end = 0;
  for (const auto& segment : segments_)
    if (segment.trainable) end = segment.begin + segment.length;
  return end;
}

at::Tensor FlatBuffer::make_gradients() const {
  const auto dtype = values_.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const MemoryScope scope(MemoryClass::gradients);
  return at::zeros({trainable_elements()}, values_.options().dtype(dtype));
}

std::vector<Parameter> FlatBuffer::views(const at::Tensor& gradients) const {
  std::vector<Parameter> parameters;
  for (const auto& place : places_) {
    Parameter parameter{place.param.full_name, place.param.spec, {}, {}};
    const int64_t length = numel_of(place.shape);
    parameter.value = values_.narrow(0, place.begin, length).view(place.shape);
    if (gradients.defined() && place.param.spec->trainable)
      parameter.grad = gradients.narrow(0, place.begin, length).view(place.shape);
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

}  // namespace shardline
