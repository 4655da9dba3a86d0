#include "optim/update/tensor_factors.h"

#include <functional>
#include <numeric>

#include "core/error.h"

namespace shardline {
namespace {

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// Sets how a step of `stride` file elements, taken up to `length` times, moves in both vectors.
void set_steps(TensorFactors& tensor, size_t dim, int64_t length, int64_t stride) {
  if (length == 1) return;
  const int64_t matrix = tensor.rows * tensor.columns, last = (length - 1) * stride;
  if (stride < tensor.columns) {
    SL_ASSERT(last < tensor.columns, "a logical dimension crosses the end of a row of ", tensor.columns);
    tensor.column_step[dim] = stride;
  } else if (stride < matrix) {
    SL_ASSERT(last < matrix && stride % tensor.columns == 0, "a logical dimension crosses the end of a matrix");
    tensor.row_step[dim] = stride / tensor.columns;
  } else {
    SL_ASSERT(stride % matrix == 0, "a logical dimension steps into the middle of a matrix");
    tensor.row_step[dim] = stride / tensor.columns;
    tensor.column_step[dim] = stride / matrix * tensor.columns;
  }
}

TensorFactors factors_of(const ParamSpec& spec, const ParamSource& source) {
  const auto& view = source.view.empty() ? spec.shape : source.view;
  const auto& file = source.shape.empty() ? view : source.shape;
  TensorFactors tensor{.elements = product(file), .factored = file.size() >= 2};
  tensor.row_step.resize(view.size());
  tensor.column_step.resize(view.size());
  tensor.begin = source.offset.empty() ? std::vector<int64_t>(view.size()) : source.offset;
  if (tensor.factored && tensor.elements > 0) {
    tensor.columns = file.back();
    tensor.rows = file[file.size() - 2];
    tensor.matrices = tensor.elements / (tensor.rows * tensor.columns);
  }
  std::vector<int64_t> stride(view.size(), 1);
  for (size_t dim = view.size(); dim-- > 1;) stride[dim - 1] = stride[dim] * view[dim];
  for (size_t dim = 0; dim < view.size(); ++dim) {
    const size_t from = source.permute.empty() ? dim : source.permute[dim];
    tensor.length.push_back(view[from]);
    if (tensor.matrices > 0) set_steps(tensor, dim, view[from], stride[from]);
  }
  return tensor;
}

}  // namespace

std::vector<TensorFactors> tensor_factors(const ParamSpec& spec) {
  if (spec.sources.empty()) return {factors_of(spec, {})};
  std::vector<TensorFactors> tensors;
  for (const auto& source : spec.sources) tensors.push_back(factors_of(spec, source));
  return tensors;
}

}  // namespace shardline
