#include "engine/data/dataset/batch_source.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "core/error.h"

namespace shardline {
namespace {

// The labels that some position predicts: all but the first of a row, without the ignored ones.
int64_t counting_labels(const at::Tensor& labels) {
  if (labels.size(1) < 2) return 0;
  return labels.slice(1, 1).ne(kNoLabel).sum().item<int64_t>();
}

// Throws unless the values of all rows, which `what` names ("id"), are below `count`; is_label: or kNoLabel. ahead: of
// how many tokens after its own a row's value is.
void check_range(const Batch& batch, const at::Tensor& values, const char* what, int64_t count, bool is_label,
                 int64_t ahead, const std::string& rule) {
  const at::Tensor dense = values.contiguous();
  const auto* value = dense.const_data_ptr<int64_t>();
  size_t sample = 0;
  for (int64_t row = 0; row < dense.numel(); ++row) {
    while (row >= batch.rows.ends[sample]) ++sample;
    if ((value[row] >= 0 && value[row] < count) || (is_label && value[row] == kNoLabel)) continue;
    const std::string source =
        sample < batch.sample_index.size() ? cat(" (sample ", batch.sample_index[sample], " of the data)") : "";
    throw DataError(cat("the batch: sample ", batch.first_sample + sample, source, ", token ",
                        batch.rows.positions.const_data_ptr<int64_t>()[row] + ahead, " has the ", what, " ", value[row],
                        rule));
  }
}

SampleOrderOptions for_samples(SampleOrderOptions order, int64_t samples) {
  order.samples = samples;
  return order;
}

}  // namespace

BatchSlice clipped(const BatchSlice& slice, int64_t samples) {
  SL_ASSERT(slice.first >= 0 && slice.count >= 0, "slice ", slice.first, " + ", slice.count);
  const int64_t first = std::min(slice.first, samples);
  return {first, std::min(slice.count, samples - first)};
}

Microbatch rows_of_slice(const at::Tensor& ids, const at::Tensor& labels, int64_t first_sample) {
  return causal_microbatch(ids, labels.defined() ? labels : ids,
                           at::arange(first_sample, first_sample + ids.size(0), at::kLong));
}

void check_batch(const Batch& batch, const ModelSpec& spec) {
  const Microbatch& rows = batch.rows;
  const auto vocabulary = [&](bool is_label) {
    return cat(", but the model's vocabulary has ", spec.vocab_size, " entries (0 to ", spec.vocab_size - 1,
               is_label ? cat("; ", kNoLabel, " is ignored") : "",
               "); use the model's own tokenizer, or a larger model.config.vocab_size");
  };
  check_range(batch, rows.ids, "id", spec.vocab_size, /*is_label=*/false, 0, vocabulary(false));
  if (rows.types.defined() && spec.type_count > 0)
    check_range(batch, rows.types, "token type", spec.type_count, /*is_label=*/false, 0,
                cat(", but the model has ", spec.type_count, "; use the model's own tokenizer"));
  if (!rows.labels.defined()) return;
  if (spec.row_labels > 0)
    check_range(batch, rows.labels, "label", spec.row_labels, /*is_label=*/true, 0,
                cat(", but the model has ", spec.row_labels, " labels"));
  else
    check_range(batch, rows.labels, "label", spec.vocab_size, /*is_label=*/true, spec.predicts_next, vocabulary(true));
}

EpochSource::EpochSource(int64_t samples, SampleOrderOptions order)
    : samples_(samples), order_(for_samples(order, samples)) {}

Batch EpochSource::batch(int64_t step, const BatchSlice& slice) {
  SL_ASSERT(step >= 0, "step ", step);
  const int64_t epoch = step / steps_per_epoch();
  const std::vector<int64_t> samples = order_.samples_of_batch(epoch, step % steps_per_epoch());
  Batch batch{.global_samples = std::ssize(samples), .epoch = order_.epochs_after(step)};
  const BatchSlice mine = clipped(slice, batch.global_samples);
  batch.first_sample = mine.first;
  batch.sample_index.assign(samples.begin() + mine.first, samples.begin() + mine.first + mine.count);
  read(samples, epoch, batch);
  return batch;
}

void DatasetSource::read(const std::vector<int64_t>& samples, int64_t, Batch& batch) const {
  const int64_t length = data_.sequence_length(), rows = std::ssize(batch.sample_index);
  batch.tokens = std::ssize(samples) * length;
  batch.weight = std::ssize(samples) * (length - 1);
  const at::Tensor ids = at::empty({rows, length}, at::kLong);
  auto* out = ids.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) data_.read(batch.sample_index[row], out + row * length);
  batch.rows = rows_of_slice(ids, {}, batch.first_sample);
}

std::string DatasetSource::describe() const {
  return cat(data_.size(), " blocks of ", data_.sequence_length(), " tokens, ", data_.dropped_tokens(),
             " tokens left over");
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
  batch.tokens = fed.ids.numel();
  batch.weight = counting_labels(fed.labels);
  const BatchSlice rows = clipped(slice, batch.global_samples);
  batch.first_sample = rows.first;
  for (int64_t row = 0; row < rows.count; ++row) batch.sample_index.push_back(rows.first + row);
  batch.rows = rows_of_slice(fed.ids.narrow(0, rows.first, rows.count), fed.labels.narrow(0, rows.first, rows.count),
                             rows.first);
  return batch;
}

}  // namespace shardline
