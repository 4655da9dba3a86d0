// The samples that a program passes to a Trainer, as batches.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "core/comm/rank_groups.h"
#include "core/model/model_spec.h"
#include "engine/data/dataset/batch_source.h"
#include "engine/run/model_source.h"
#include "include/shardline/shardline.h"

namespace shardline {

// What a model is trained on: one of ids, features and columns, and at most one of labels and targets.
struct SampleTensors {
  at::Tensor ids;                             // [samples, length] int64
  at::Tensor features;                        // [samples, length, width] double
  std::map<std::string, at::Tensor> columns;  // by name, [samples, sizes...] of the column's type
  at::Tensor labels;                          // [samples, length] int64; of a target, [samples, its length]
  at::Tensor targets;                         // [samples] int64, or [samples, outputs] double
  std::string mistake;                        // of the caller; all ranks report it; empty: none
};

// Views of the caller's memory. If the model takes a single column, `features` may hold its values.
SampleTensors tensors_of(const Samples& samples, const ModelSource& model);
// Tensors as Trainer::step describes them. labels may be undefined.
SampleTensors tensors_of(const at::Tensor& inputs, const at::Tensor& labels, const ModelSource& model);
SampleTensors tensors_of(const std::map<std::string, at::Tensor>& columns, const at::Tensor& labels,
                         const ModelSource& model);

// What is wrong with samples for this model; empty: nothing. labelled: the samples need labels.
std::string mistake_in(const SampleTensors& samples, const ModelSource& model, bool labelled);

// Cuts the samples into batches of at most `most` samples per replica. The first batch is for step `first_step`.
class CallersSource : public BatchSource {
 public:
  // Collective over the world. Each replica has the samples of its first rank; `mine` is ignored on the others. Throws
  // on all ranks if the model does not take the samples of a replica, or if replicas have different numbers of samples.
  CallersSource(const SampleTensors& mine, const ModelSource& model, const RankGroups& groups, int64_t first_step,
                int64_t most);

  Batch batch(int64_t step, const BatchSlice& slice) override;
  int64_t samples_in_step(int64_t step) const override;
  int64_t steps() const { return (count_ + most_ - 1) / most_; }
  int64_t samples_of_replica() const { return count_; }

 private:
  Range samples_of(int64_t step) const;  // this replica's samples
  int64_t weight_of(const SampleTensors& samples) const;

  SampleTensors samples_;
  const ModelSource& model_;
  const RankGroups& groups_;
  int64_t first_step_, most_, count_ = 0;
  std::vector<int64_t> weights_;  // weights of the batches, over all replicas
};

}  // namespace shardline
