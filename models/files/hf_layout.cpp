#include "models/files/hf_layout.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>

#include "core/error.h"

namespace shardline {
namespace {

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

std::vector<int64_t> inverse(const std::vector<int64_t>& permute) {
  std::vector<int64_t> inverted(permute.size());
  for (size_t d = 0; d < permute.size(); ++d) inverted[permute[d]] = d;
  return inverted;
}

Range intersection(Range a, Range b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max<int64_t>(std::min(a.end(), b.end()) - begin, 0)};
}

}  // namespace

std::vector<int64_t> permutation(const ParamSpec& param, const ParamSource& source) {
  if (!source.permute.empty()) return source.permute;
  std::vector<int64_t> identity(param.shape.size());
  std::iota(identity.begin(), identity.end(), 0);
  return identity;
}

std::vector<int64_t> file_view(const ParamSpec& param, const ParamSource& source) {
  const auto& view = source.view.empty() ? param.shape : source.view;
  SL_ASSERT(view.size() == param.shape.size(), source.tensor, ": the view needs a dimension for each of ", param.name);
  return view;
}

std::vector<int64_t> file_shape(const ParamSpec& param, const ParamSource& source) {
  const auto view = file_view(param, source);
  if (source.shape.empty()) return view;
  SL_ASSERT(product(source.shape) == product(view), source.tensor,
            ": view and shape have different numbers of elements");
  return source.shape;
}

SharedPart shared_part(const ParamSpec& param, const ParamSource& source, int t, int t_degree,
                       const at::Tensor& local) {
  SL_ASSERT(local.sizes() == at::IntArrayRef(param.local_shape(t, t_degree)), param.name, ": rank ", t, " of ",
            t_degree, " holds ", at::IntArrayRef(param.local_shape(t, t_degree)), ", got ", local.sizes());
  const auto view = file_view(param, source), permute = permutation(param, source);
  const size_t cut = std::max(param.split_dim, 0);
  const Range mine = param.split_dim < 0 ? Range{0, param.shape[0]} : param.split(t, t_degree);

  SharedPart part{local, permute[cut], {}};
  for (size_t d = 0; d < param.shape.size(); ++d) {
    const Range whole{source.offset.empty() ? 0 : source.offset[d], view[permute[d]]};
    SL_ASSERT(whole.begin >= 0 && whole.end() <= param.shape[d], source.tensor, " is outside ", param.name);
    const Range shared = d == cut ? intersection(whole, mine) : whole;
    if (d == cut) part.range = {shared.length ? shared.begin - whole.begin : 0, shared.length};
    const int64_t start = d == cut && shared.length ? shared.begin - mine.begin : d == cut ? 0 : shared.begin;
    part.local = part.local.narrow(d, start, shared.length);
  }
  part.local = part.local.permute(inverse(permute));
  return part;
}

std::string file_in(const std::string& directory, const std::string& file) {
  return (std::filesystem::path(directory) / file).string();
}

bool has_file(const std::string& directory, const std::string& file) {
  std::error_code ignored;
  return std::filesystem::exists(file_in(directory, file), ignored);
}

}  // namespace shardline
