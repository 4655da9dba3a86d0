#include "models/files/file_boxes.h"

#include <algorithm>

#include "core/error.h"
#include "models/files/hf_layout.h"
#include "models/files/tensor_file.h"

namespace shardline {
namespace {

// Cuts ranges of a row-major tensor into boxes: the rest of a first row, whole rows, the start of a last row. Rows that
// are cut are ranges of a tensor with one dimension less.
class RangeCutter {
 public:
  RangeCutter(const std::vector<int64_t>& sizes, int64_t begin, const at::Tensor& values)
      : sizes_(sizes), strides_(row_major_strides(sizes)), begin_(begin), values_(values) {}

  std::vector<FileBox> cut(int64_t end) {
    if (sizes_.empty()) {  // a scalar
      if (begin_ < end) boxes_.push_back({{}, {}, values_.defined() ? values_.reshape({}) : values_});
      return std::move(boxes_);
    }
    if (begin_ < end) cut(0, {}, begin_, end);
    return std::move(boxes_);
  }

 private:
  // [from, to): elements below index `prefix` of the dimensions before `dim`.
  void cut(size_t dim, const std::vector<int64_t>& prefix, int64_t from, int64_t to) {
    const int64_t row = strides_[dim], first = from / row, last = to / row;  // `last`: the first that is not whole
    const auto within = [&](int64_t index, int64_t begin, int64_t end) {
      auto longer = prefix;
      longer.push_back(index);
      cut(dim + 1, longer, begin, end);
    };
    if (from % row != 0 && first == last) return within(first, from % row, to % row);
    if (from % row != 0) within(first, from % row, row);
    const int64_t whole = first + (from % row != 0 ? 1 : 0);
    if (whole < last) add(dim, prefix, whole, last);
    if (to % row != 0) within(last, 0, to % row);
  }

  void add(size_t dim, const std::vector<int64_t>& prefix, int64_t first, int64_t last) {
    FileBox box{prefix, std::vector<int64_t>(prefix.size(), 1), {}};
    box.begin.push_back(first);
    box.length.push_back(last - first);
    for (size_t d = dim + 1; d < sizes_.size(); ++d) {
      box.begin.push_back(0);
      box.length.push_back(sizes_[d]);
    }
    if (values_.defined()) {
      int64_t start = -begin_;
      for (size_t d = 0; d < sizes_.size(); ++d) start += box.begin[d] * strides_[d];
      box.values = values_.as_strided(box.length, strides_, values_.storage_offset() + start);
    }
    boxes_.push_back(std::move(box));
  }

  const std::vector<int64_t>& sizes_;
  const std::vector<int64_t> strides_;
  const int64_t begin_;
  const at::Tensor& values_;
  std::vector<FileBox> boxes_;
};

}  // namespace

std::vector<FileBox> range_boxes(const std::vector<int64_t>& sizes, int64_t begin, int64_t length,
                                 const at::Tensor& values) {
  SL_ASSERT(!values.defined() || (values.dim() == 1 && values.size(0) == length && values.is_contiguous()),
            "a range of ", length, " elements has values of ", values.sizes());
  return RangeCutter(sizes, begin, values).cut(begin + length);
}

std::vector<FileBox> file_boxes(const SlicePart& part, const ParamSource& source, const at::Tensor& values) {
  const ParamSpec& spec = *part.spec;
  const auto view = file_view(spec, source), permute = permutation(spec, source);
  std::vector<FileBox> boxes;
  for (auto& local : range_boxes(spec.local_shape(part.t, part.t_degree), part.offset, part.length, values)) {
    FileBox box{std::vector<int64_t>(view.size()), std::vector<int64_t>(view.size()), local.values};
    std::vector<int64_t> dim_of_view(view.size());
    bool empty = false;
    for (int d = 0; d < std::ssize(view); ++d) {
      const size_t v = permute[d];
      dim_of_view[v] = d;
      const bool split = spec.split_dim == d;
      // The start of the box, relative to that of the source.
      const int64_t shift = local.begin[d] + (split ? spec.split(part.t, part.t_degree).begin : 0) -
                            (source.offset.empty() ? 0 : source.offset[d]);
      box.begin[v] = std::max<int64_t>(shift, 0);
      box.length[v] = std::min(shift + local.length[d], view[v]) - box.begin[v];
      if (box.length[v] <= 0) {
        empty = true;
        break;
      }
      if (box.values.defined()) box.values = box.values.narrow(d, box.begin[v] - shift, box.length[v]);
    }
    if (empty) continue;
    if (box.values.defined()) box.values = box.values.permute(dim_of_view);
    boxes.push_back(std::move(box));
  }
  return boxes;
}

FileBox intersection(const FileBox& box, const FileBox& other) {
  FileBox common = box;
  for (size_t d = 0; d < box.begin.size(); ++d) {
    common.begin[d] = std::max(box.begin[d], other.begin[d]);
    const int64_t end = std::min(box.begin[d] + box.length[d], other.begin[d] + other.length[d]);
    common.length[d] = std::max<int64_t>(end - common.begin[d], 0);
    if (common.length[d] == 0) return {common.begin, common.length, {}};
    if (common.values.defined())
      common.values = common.values.narrow(d, common.begin[d] - box.begin[d], common.length[d]);
  }
  return common;
}

bool is_empty(const FileBox& box) {
  return std::ranges::find(box.length, 0) != box.length.end();
}

}  // namespace shardline
