#include "models/files/new_rows.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/numbers/philox.h"

namespace shardline {
namespace {

constexpr uint32_t kNewRowOp = 65534;  // no dropout uses this number
constexpr double kCovarianceShare = 1e-9;
constexpr int64_t kRowBlockBytes = 4 << 20;

// Calls use(first row, rows [n, width] in double) for blocks of a parameter's rows in the file, in order.
template <class Use>
void for_each_block(const HfDirectory& files, const ParamSpec& param, const std::string& full_name, const Use& use) {
  // A block is read like the part of the parameter that one of many ranks would hold.
  ParamSpec old = param;
  const int64_t rows = files.rows_of(param), width = param.numel() / param.shape[0];
  old.shape[0] = rows;
  old.split_dim = 0;
  for (ParamSource& source : old.sources)
    if (!source.shape.empty()) source.shape[0] = rows;
  const int blocks = std::clamp<int64_t>(rows * width * sizeof(double) / kRowBlockBytes, 1, rows);
  for (int block = 0; block < blocks; ++block) {
    const auto values = at::empty(old.local_shape(block, blocks), at::kDouble);
    files.read(old, full_name, block, blocks, values);
    use(old.split(block, blocks).begin, values.view({-1, width}));
  }
}

}  // namespace

// With z_i drawn from the standard normal distribution, mean + sqrt(share / n) * sum of z_i * (row_i - mean) over the n
// rows has that mean and `share` times their covariance, which need not be computed.
void draw_new_rows(const HfDirectory& files, const ParamSpec& param, const std::string& full_name, uint32_t number,
                   uint64_t seed, int t, int t_degree, at::Tensor value,
                   const std::function<void(int64_t bytes)>& filled) {
  const at::NoGradGuard values_only;
  const Range mine = param.split_dim == 0 ? param.split(t, t_degree) : Range{0, param.shape[0]};
  const int64_t rows = files.rows_of(param), width = param.numel() / param.shape[0];
  const int64_t first = std::max(rows, mine.begin), count = mine.end() - first;
  if (count <= 0) return;

  std::vector<double> mean(width);
  for_each_block(files, param, full_name, [&](int64_t, const at::Tensor& block) {
    const double* row = block.const_data_ptr<double>();
    for (int64_t i = 0; i < block.size(0); ++i, row += width)
      for (int64_t c = 0; c < width; ++c) mean[c] += row[c];
  });
  for (double& one : mean) one /= rows;

  const auto drawn = at::zeros({count, width}, at::kDouble);
  for_each_block(files, param, full_name, [&](int64_t begin, const at::Tensor& block) {
    const double* old = block.const_data_ptr<double>();
    at::parallel_for(0, count, 1, [&](int64_t from, int64_t to) {
      std::vector<double> normals(block.size(0));
      for (int64_t r = from; r < to; ++r) {
        const RandomStream stream{.seed = seed, .op = kNewRowOp, .step = number};
        random_normals(stream, (first + r - rows) * rows + begin, block.size(0), normals.data());
        double* sum = drawn.data_ptr<double>() + r * width;
        for (int64_t i = 0; i < block.size(0); ++i)
          for (int64_t c = 0; c < width; ++c) sum[c] += normals[i] * (old[i * width + c] - mean[c]);
      }
    });
  });
  const double scale = std::sqrt(kCovarianceShare / rows);
  double* sum = drawn.data_ptr<double>();
  for (int64_t i = 0; i < drawn.numel(); ++i) sum[i] = mean[i % width] + scale * sum[i];
  const at::Tensor to = value.narrow(0, first - mine.begin, count);
  to.copy_(drawn.view(to.sizes()));
  if (filled) filled(to.nbytes());
}

}  // namespace shardline
