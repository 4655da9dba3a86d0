// Batches for a model with any head: samples of one length, with as many labels as a plan assumes.
#pragma once
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "engine/data/dataset/batch_source.h"
#include "engine/data/examples/microbatch_rows.h"
#include "models/families/head_choice.h"

namespace shardline {

class TaskSource : public BatchSource {
 public:
  struct Shape {
    int64_t samples = 0;   // in a global batch
    int64_t together = 0;  // in a microbatch
    int64_t length = 0;
    int64_t documents = 1;  // packed into each sample; above 1 only for causal-lm
    bool types = false;
  };
  TaskSource(HeadChoice head, const Shape& shape) : head_(std::move(head)), shape_(shape) {}

  int64_t samples_in_step(int64_t) const override { return shape_.samples; }
  Batch batch(int64_t, const BatchSlice& slice) override {
    std::vector<int64_t> ends, sample_ends;
    for (int64_t i = 0; i < slice.count; ++i) {
      for (int64_t k = 1; k <= shape_.documents; ++k)
        ends.push_back(i * shape_.length + k * shape_.length / shape_.documents);
      if (shape_.documents > 1) sample_ends.push_back(std::ssize(ends));
    }
    Batch batch{.rows = rows_of_segments(ends, slice.first, sample_ends),
                .sample_ends = sample_ends,
                .first_sample = slice.first,
                .global_samples = shape_.samples,
                .tokens = shape_.samples * shape_.length};
    batch.rows.ids.fill_(1);
    if (shape_.types) batch.rows.types = at::zeros({batch.rows.tokens()}, at::kLong);
    batch.weight = shape_.samples * set_labels(batch.rows, slice) / std::max<int64_t>(1, slice.count);
    return batch;
  }

 private:
  // Returns how many labels of the slice count.
  int64_t set_labels(Microbatch& rows, const BatchSlice& slice) const {
    using Kind = HeadChoice::Kind;
    const int64_t count = rows.tokens();
    switch (head_.kind) {
      case Kind::causal_lm:
        rows.labels = at::ones({count}, at::kLong);
        for (const int64_t end : rows.ends) rows.labels[end - 1] = kNoLabel;
        return count - rows.segments();
      case Kind::masked_lm: {
        // Labels the first rows of each microbatch, as many as a plan allows for.
        const int64_t of_microbatch = shape_.together * shape_.length;
        const int64_t most =
            std::ceil(most_labelled_share(head_, of_microbatch, shape_.together) * double(of_microbatch));
        rows.labels = at::full({count}, kNoLabel, at::kLong);
        for (int64_t row = 0; row < count; ++row)
          if ((slice.first * shape_.length + row) % of_microbatch < most) rows.labels[row] = 1;
        return (rows.labels != kNoLabel).sum().item<int64_t>();
      }
      case Kind::token_classification:
        rows.labels = at::ones({count}, at::kLong);
        return count;
      case Kind::question_answering:
        rows.targets = at::zeros({slice.count, 2}, at::kLong);
        return slice.count;
      default:
        rows.targets = at::zeros({slice.count}, at::kLong);
        return slice.count;
    }
  }

  HeadChoice head_;
  Shape shape_;
};

}  // namespace shardline
