// Every element of a part or of a range is in exactly one box, at the position defined by the layout of files.
#include "models/files/file_boxes.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <random>

#include "models/files/hf_layout.h"

#include "tests/catch.h"

namespace shardline::file_boxes_test {

namespace {

at::Tensor place(const at::Tensor& view, const FileBox& box) {
  at::Tensor part = view;
  for (size_t d = 0; d < box.begin.size(); ++d) part = part.narrow(d, box.begin[d], box.length[d]);
  return part;
}

std::vector<ParamSpec> specs() {
  // Parameters that are fused and transposed, like GPT-2's; three sources of one parameter; not split; a vector.
  return {{.name = "fused",
           .shape = {3, 5, 2, 7},
           .split_dim = 1,
           .sources = {{"w", {7, 3, 5, 2}, {1, 2, 3, 0}, {}, {7, 30}}}},
          {.name = "separate",
           .shape = {3, 5, 2, 7},
           .split_dim = 1,
           .sources = {{"q", {1, 5, 2, 7}, {}, {0, 0, 0, 0}, {10, 7}},
                       {"k", {1, 5, 2, 7}, {}, {1, 0, 0, 0}, {10, 7}},
                       {"v", {1, 5, 2, 7}, {}, {2, 0, 0, 0}, {10, 7}}}},
          {.name = "rows", .shape = {11, 3}, .split_dim = 0, .sources = {{"r", {}, {}, {}, {}}}},
          {.name = "whole", .shape = {4, 6}, .split_dim = -1, .sources = {{"t", {6, 4}, {1, 0}, {}, {}}}},
          {.name = "bias", .shape = {3, 5, 2}, .split_dim = 1, .sources = {{"b", {}, {}, {}, {30}}}}};
}

}  // namespace

TEST_CASE("ranges of a tensor are cut into boxes") {
  std::mt19937 random(3);
  const std::vector<std::vector<int64_t>> shapes = {{60}, {6, 10}, {3, 4, 5}, {2, 1, 3, 10}, {60, 1}, {1, 60}};
  for (const auto& sizes : shapes) {
    for (int trial = 0; trial < 200; ++trial) {
      const int64_t begin = random() % 60, length = random() % (61 - begin);
      const auto whole = at::zeros({60}, at::kLong);
      const auto values = at::arange(begin, begin + length) + 1;
      const auto boxes = range_boxes(sizes, begin, length, values);
      CHECK(boxes.size() <= 2 * sizes.size() - 1);
      for (const auto& box : boxes) place(whole.view(sizes), box).add_(box.values);
      CHECK(whole.narrow(0, begin, length).equal(values));
      CHECK(whole.sum().item<int64_t>() == values.sum().item<int64_t>());
    }
  }
}

TEST_CASE("parts of slices are read from the places of their elements in the files") {
  std::mt19937 random(4);
  for (const auto& spec : specs())
    for (const int t_degree : {1, 2, 3}) {
      std::map<std::string, at::Tensor> expected, found;
      for (const auto& source : spec.sources) {
        expected[source.tensor] = at::zeros(file_view(spec, source), at::kLong);
        found[source.tensor] = at::zeros(file_view(spec, source), at::kLong);
      }
      for (int t = 0; t < (spec.split_dim < 0 ? 1 : t_degree); ++t) {
        const auto shape = spec.local_shape(t, t_degree);
        const auto local = at::arange(c10::multiply_integers(shape)) + 1 + 1000 * t;
        for (const auto& source : spec.sources) {
          const SharedPart part = shared_part(spec, source, t, t_degree, local.view(shape));
          if (part.range.length > 0)
            expected[source.tensor].narrow(part.dim, part.range.begin, part.range.length).copy_(part.local);
        }
        // In random pieces.
        for (int64_t begin = 0; begin < local.numel();) {
          const int64_t length = std::min<int64_t>(1 + random() % 40, local.numel() - begin);
          for (const auto& source : spec.sources)
            for (const auto& box :
                 file_boxes({&spec, t, t_degree, begin, length}, source, local.narrow(0, begin, length))) {
              place(found[source.tensor], box).add_(box.values);
              const auto bare = file_boxes({&spec, t, t_degree, begin, length}, source, {});
              CHECK(std::ranges::any_of(
                  bare, [&](const FileBox& other) { return other.begin == box.begin && other.length == box.length; }));
            }
          begin += length;
        }
      }
      for (const auto& source : spec.sources) {
        CAPTURE(spec.name, t_degree, source.tensor);
        CHECK(found[source.tensor].equal(expected[source.tensor]));
      }
    }
}

TEST_CASE("the intersection of two boxes is what both contain") {
  const auto values = at::arange(24).view({4, 6});
  const FileBox box{{1, 2}, {4, 6}, values}, other{{3, 0}, {9, 5}, {}};
  const FileBox common = intersection(box, other);
  CHECK(common.begin == std::vector<int64_t>{3, 2});
  CHECK(common.length == std::vector<int64_t>{2, 3});
  CHECK(common.values.equal(values.narrow(0, 2, 2).narrow(1, 0, 3)));
  CHECK_FALSE(is_empty(common));
  CHECK(is_empty(intersection(box, {{5, 0}, {1, 9}, {}})));
}

}  // namespace shardline::file_boxes_test
