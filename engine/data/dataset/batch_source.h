// The source of a step's batches: a data set that every rank reads (examples: example_source.h), or a program that
// feeds them.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/model/microbatch.h"
#include "engine/data/dataset/sample_order.h"
#include "engine/data/dataset/text_dataset.h"

namespace shardline {

// Samples [first, first + count) of the global batch; those beyond the end of a short batch are omitted.
struct BatchSlice {
  int64_t first = 0;
  int64_t count = 0;
};
// The part of a slice that is in a batch of this many samples.
BatchSlice clipped(const BatchSlice& slice, int64_t samples);

struct Batch {
  Microbatch rows;                    // the tokens of the slice's samples, in host memory
  std::vector<int64_t> sample_ends;   // segments before the end of each sample of the slice; empty: one for each
  std::vector<int64_t> sample_index;  // [samples of the slice] indexes in the data set
  int64_t first_sample = 0;           // place of the slice's first sample in the global batch
  // These refer to the whole global batch:
  int64_t global_samples = 0;
  int64_t tokens = 0;
  int64_t weight = 0;  // labels that count
  double epoch = 0;    // epochs completed after this step

  // The segments of some samples of the slice.
  Range segments_of(const Range& samples) const;
};

// The tokens of a slice whose samples have one length: ids [samples, length] int64, and the labels for the same
// positions, which are the ids themselves if undefined.
Microbatch rows_of_slice(const at::Tensor& ids, const at::Tensor& labels, int64_t first_sample);

// Throws DataError unless every id is in the model's vocabulary, every token type in its table, and every label of a
// row a word or a class that the model has, or -100, which does not count. The model's operations rely on this: a rank
// whose part of the vocabulary lacks an id assumes that another rank has it.
void check_batch(const Batch& batch, const ModelSpec& spec);

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Steps count from 0 over all epochs. Every rank of a replica passes the same slice and receives the same tensors.
  virtual Batch batch(int64_t step, const BatchSlice& slice) = 0;
  // The samples of the global batch of this step, known before it is read.
  virtual int64_t samples_in_step(int64_t step) const = 0;
};

// Batches of a data set, epoch after epoch.
class EpochSource : public BatchSource {
 public:
  Batch batch(int64_t step, const BatchSlice& slice) final;
  int64_t samples_in_step(int64_t step) const final { return order_.samples_in_batch(step % steps_per_epoch()); }
  int64_t steps_per_epoch() const { return order_.batches_per_epoch(); }
  int64_t samples() const { return samples_; }  // in an epoch
  // Set if the parts of the data have weights.
  const std::optional<Mixture>& mixture() const { return order_.mixture(); }
  virtual int64_t dropped_tokens() const = 0;  // number of tokens that are in no sample
  virtual std::string describe() const = 0;    // "2490 blocks of 128 tokens, 7 tokens left over"
  // A digest of the samples; it does not depend on the paths of their files.
  virtual std::string digest() const = 0;

 protected:
  // order.samples is set to `samples`; with weights, order.part_samples must be those of the parts. length_of: tokens
  // of a sample, called if samples are grouped by length.
  EpochSource(int64_t samples, SampleOrderOptions order, const std::function<int64_t(int64_t)>& length_of);
  std::string mixture_digest() const;  // empty without a mixture

 private:
  // samples: the global batch. Fills in the number of tokens and the weight of these samples, and the rows of the
  // slice, whose samples are in batch.sample_index. epoch: counted from 0.
  virtual void read(const std::vector<int64_t>& samples, int64_t epoch, Batch& batch) const = 0;

  int64_t samples_;
  SampleOrder order_;
};

// Texts, for causal language models.
class DatasetSource final : public EpochSource {
 public:
  DatasetSource(TextDataset data, const SampleOrderOptions& order)
      : DatasetSource(std::vector{std::move(data)}, order) {}
  // parts: of a mixture, as many as order.weights; without weights, a single one. names: of the parts, for the user.
  DatasetSource(std::vector<TextDataset> parts, const SampleOrderOptions& order, std::vector<std::string> names = {});

  int64_t dropped_tokens() const override;
  std::string describe() const override;
  std::string digest() const override;

 private:
  // A sample's runs of tokens, and the part that has them.
  std::pair<const TextDataset*, std::vector<Range>> find(int64_t sample) const;
  void read(const std::vector<int64_t>& samples, int64_t epoch, Batch& batch) const override;

  std::vector<TextDataset> parts_;
  std::vector<std::string> names_;  // empty: none
};

// `fed`: each push is the global batch of one step, in order. A step may be read several times (once per microbatch)
// until a later one is requested.
class FedSource final : public BatchSource {
 public:
  // ids: [n, s] int64. labels: the same shape, or undefined if the labels are the ids.
  void push(const at::Tensor& ids, const at::Tensor& labels = {});

  // Throws RunError for a step that was not pushed or has been dropped.
  Batch batch(int64_t step, const BatchSlice& slice) override;
  int64_t samples_in_step(int64_t step) const override;

 private:
  struct Fed {
    at::Tensor ids;
    at::Tensor labels;
  };
  const Fed& at(int64_t step) const;

  std::deque<Fed> waiting_;
  int64_t first_step_ = 0;  // the step of waiting_[0]
};

}  // namespace shardline
