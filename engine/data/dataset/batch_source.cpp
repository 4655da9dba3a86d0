#include "engine/data/dataset/batch_source.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "core/error.h"

namespace shardline {
namespace {

constexpr int64_t kIgnoredLabel = -100;

BatchSlice clipped(const BatchSlice& slice, int64_t samples) {
  SL_ASSERT(slice.first >= 0 && slice.count >= 0, "slice ", slice.first, " + ", slice.count);
  const int64_t first = std::min(slice.first, samples);
  return {first, std::min(slice.count, samples - first)};
}

// The labels that some position predicts: all but the first of a row, without the ignored ones.
int64_t counting_labels(const at::Tensor& labels) {
  if (labels.size(1) < 2) return 0;
  return labels.slice(1, 1).ne(kIgnoredLabel).sum().item<int64_t>();
}

// `what`: "id" or "label".
void check_range(const Batch& batch, const at::Tensor& tokens, const char* what, bool may_be_ignored,
                 int64_t vocab_size) {
  const at::Tensor dense = tokens.contiguous();
  const auto* token = dense.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < dense.numel(); ++i) {
    if ((token[i] >= 0 && token[i] < vocab_size) || (may_be_ignored && token[i] == kIgnoredLabel)) continue;
    const int64_t row = i / dense.size(1);
    const size_t index = row;
    const std::string source =
        index < batch.sample_index.size() ? cat(" (sample ", batch.sample_index[index], " of the data)") : "";
    throw DataError(cat("the batch: sample ", batch.first_sample + row, source, ", token ", i % dense.size(1),
                        " has the ", what, " ", token[i], ", but the model's vocabulary has ", vocab_size,
                        " entries (0 to ", vocab_size - 1,
                        may_be_ignored ? cat("; ", kIgnoredLabel, " is ignored") : "",
                        "); use the model's own tokenizer, or a larger model.config.vocab_size"));
  }
}

SampleOrderOptions for_samples(SampleOrderOptions order, int64_t samples) {
  order.samples = samples;
  return order;
}

}  // namespace

void check_vocabulary(const Batch& batch, int64_t vocab_size) {
  check_range(batch, batch.ids, "id", false, vocab_size);
  if (!batch.labels.is_same(batch.ids)) check_range(batch, batch.labels, "label", true, vocab_size);
}

DatasetSource::DatasetSource(BlockDataset data, SampleOrderOptions order)
    : data_(std::move(data)), order_(for_samples(order, data_.size())) {}

Batch DatasetSource::batch(int64_t step, const BatchSlice& slice) {
  SL_ASSERT(step >= 0, "step ", step);
  const std::vector<int64_t> samples = order_.samples_of_batch(step / steps_per_epoch(), step % steps_per_epoch());
  const int64_t length = data_.sequence_length();
  Batch batch;
  batch.global_samples = samples.size();
  batch.weight = batch.global_samples * (length - 1);
  batch.epoch = order_.epochs_after(step);

  const BatchSlice rows = clipped(slice, batch.global_samples);
  batch.first_sample = rows.first;
  batch.sample_index.assign(samples.begin() + rows.first, samples.begin() + rows.first + rows.count);
  batch.ids = at::empty({rows.count, length}, at::kLong);
  auto* out = batch.ids.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < rows.count; ++row) data_.read(batch.sample_index[row], out + row * length);
  batch.labels = batch.ids;
  return batch;
}

std::string DatasetSource::digest() const {
  return cat(std::hex, data_.tokens().ids_checksum(), std::dec, ", ", data_.size(), " blocks from ",
             data_.first_block(), " on");
}

void FedSource::push(const at::Tensor& ids, const at::Tensor& labels) {
  const bool good = ids.dim() == 2 && ids.scalar_type() == at::kLong;
  const bool matching = !labels.defined() || (labels.sizes() == ids.sizes() && labels.scalar_type() == at::kLong);
  if (!good || !matching) {
    throw ConfigError(cat("a fed batch is ids [samples, sequence] of int64 and labels of the same shape, not ids ",
                          ids.sizes(), " ", ids.scalar_type()));
  }
  waiting_.push_back({ids, labels.defined() ? labels : ids});
}

const FedSource::Fed& FedSource::at(int64_t step) const {
  const auto ahead = step - first_step_;
  if (ahead < 0 || ahead >= std::ssize(waiting_)) {
    throw RunError(cat("no batch was fed for step ", step, "; steps ", first_step_, " to ",
                       first_step_ + waiting_.size() - 1, " are there"));
  }
  return waiting_[ahead];
}

int64_t FedSource::samples_in_step(int64_t step) const {
  return at(step).ids.size(0);
}

Batch FedSource::batch(int64_t step, const BatchSlice& slice) {
  at(step);
  for (; first_step_ < step; ++first_step_) waiting_.pop_front();
  const Fed& fed = waiting_.front();
  Batch batch;
  batch.global_samples = fed.ids.size(0);
  batch.weight = counting_labels(fed.labels);
  const BatchSlice rows = clipped(slice, batch.global_samples);
  batch.first_sample = rows.first;
  for (int64_t row = 0; row < rows.count; ++row) batch.sample_index.push_back(rows.first + row);
  batch.ids = fed.ids.narrow(0, rows.first, rows.count);
  batch.labels = fed.labels.narrow(0, rows.first, rows.count);
  return batch;
}

}  // namespace shardline
