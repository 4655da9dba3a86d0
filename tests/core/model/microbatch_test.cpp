#include "core/model/microbatch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include "tests/catch.h"

namespace shardline::microbatch_test {
namespace {

bool are(const at::Tensor& got, const std::vector<int64_t>& expected) {
  return at::equal(got, at::tensor(expected, at::kLong));
}

}  // namespace

TEST_CASE("microbatch: in sequences of equal length, each row predicts the next one") {
  const at::Tensor ids = at::arange(10, 16, at::kLong).view({2, 3});
  const at::Tensor labels = at::tensor({20, -100, 22, 23, 24, -100}, at::kLong).view({2, 3});
  const Microbatch batch = causal_microbatch(ids, labels, at::tensor({7, 4}, at::kLong), 5);
  CHECK(are(batch.ids, {10, 11, 12, 13, 14, 15}));
  CHECK(are(batch.labels, {-100, 22, kNoLabel, 24, -100, kNoLabel}));
  CHECK(are(batch.positions, {5, 6, 7, 5, 6, 7}));
  CHECK(are(batch.places, {5, 6, 7, 5, 6, 7}));
  CHECK(are(batch.samples, {7, 7, 7, 4, 4, 4}));
  CHECK(are(batch.segment_samples, {7, 4}));
  CHECK(are(batch.segment_places, {5, 5}));
  CHECK(batch.ends == std::vector<int64_t>{3, 6});
  CHECK(batch.tokens() == 6);
  CHECK(batch.segments() == 2);
  CHECK(batch.length() == 3);
  CHECK(batch.position_count == 8);
}

TEST_CASE("microbatch: tensors are contiguous, also those of sequences of one row") {
  const at::Tensor ids = at::ones({3, 1}, at::kLong);
  const Microbatch batch = causal_microbatch(ids, ids, at::full({1}, 4, at::kLong).expand({3}), 2);
  for (const auto& t : {batch.ids, batch.labels, batch.positions, batch.places, batch.samples, batch.segment_samples,
                        batch.segment_places})
    CHECK(t.is_contiguous());
  CHECK(are(batch.positions, {2, 2, 2}));
  CHECK(are(batch.segment_samples, {4, 4, 4}));
}

TEST_CASE("microbatch: a part has the rows of its segments") {
  const at::Tensor ids = at::arange(12, at::kLong).view({4, 3});
  const Microbatch whole = causal_microbatch(ids, ids, at::arange(4, at::kLong)), part = part_of(whole, {1, 2});
  CHECK(are(part.ids, {3, 4, 5, 6, 7, 8}));
  CHECK(are(part.labels, {4, 5, kNoLabel, 7, 8, kNoLabel}));
  CHECK(are(part.samples, {1, 1, 1, 2, 2, 2}));
  CHECK(are(part.segment_samples, {1, 2}));
  CHECK(part.ends == std::vector<int64_t>{3, 6});
  const Microbatch none = part_of(whole, {4, 0});
  CHECK(none.tokens() == 0);
  CHECK(none.segments() == 0);
  CHECK(none.length() == 0);
}

TEST_CASE("microbatch: tensors that are not passed stay undefined, and a microbatch without samples has no rows") {
  const Microbatch batch = causal_microbatch(at::arange(4, at::kLong).view({1, 4}));
  CHECK(!batch.labels.defined());
  CHECK(!batch.samples.defined());
  const at::Tensor nothing = at::arange(0, at::kLong).view({0, 4});
  const Microbatch empty = causal_microbatch(nothing, nothing, at::arange(0, at::kLong));
  CHECK(empty.tokens() == 0);
  CHECK(empty.ends.empty());
}

TEST_CASE("microbatch: a part has the types of its rows and the targets of its segments") {
  const Microbatch whole{.ids = at::arange(6, at::kLong),
                         .types = at::arange(10, 16, at::kLong),
                         .targets = at::arange(6, at::kLong).view({3, 2}),
                         .ends = {1, 4, 6}};
  const Microbatch part = part_of(whole, {1, 2});
  CHECK(at::equal(part.types, at::arange(11, 16, at::kLong)));
  CHECK(at::equal(part.targets, at::arange(2, 6, at::kLong).view({2, 2})));
  CHECK(part.ends == std::vector<int64_t>{3, 5});
  CHECK(part_of(whole, {0, 0}).targets.size(0) == 0);
}

TEST_CASE("microbatch: segments of different lengths have no common length") {
  Microbatch batch;
  batch.ends = {2, 5};
  CHECK_THROWS(batch.length());
}

}  // namespace shardline::microbatch_test
