// Parts of parameters as boxes in the tensors of a Hugging Face file. A rank's part of a parameter is a range of its
// flat local slice (a shard, or the whole slice); a range of bytes of a file is a range of a flat tensor of the file.
// Both consist of few boxes, so in every layout, values are transferred between them by copying boxes.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/model/model_spec.h"

namespace shardline {

// A box in the view of a file's tensor (file_view in hf_layout.h), with its values.
struct FileBox {
  std::vector<int64_t> begin, length;  // by dimension of the view
  at::Tensor values;                   // [length...], strided: a view of the memory that the box was made from
};

// Elements that a rank holds: a range of the flat slice [spec.local_shape(t, t_degree)] of rank t.
struct SlicePart {
  const ParamSpec* spec = nullptr;
  int t = 0, t_degree = 1;
  int64_t offset = 0, length = 0;
};

// The boxes that the part has in common with the source. values: [part.length], contiguous, or undefined, in which case
// the boxes' values are undefined, too.
std::vector<FileBox> file_boxes(const SlicePart& part, const ParamSource& source, const at::Tensor& values);

// The boxes that cover elements [begin, begin + length) of a row-major tensor of these sizes. values: [length] or
// undefined.
std::vector<FileBox> range_boxes(const std::vector<int64_t>& sizes, int64_t begin, int64_t length,
                                 const at::Tensor& values);

// The part of a box that lies in another one; has length 0 in some dimension if they are disjoint.
FileBox intersection(const FileBox& box, const FileBox& other);
bool is_empty(const FileBox& box);

}  // namespace shardline
