#include "engine/data/dataset/batch_source.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "core/error.h"
#include "engine/data/examples/microbatch_rows.h"

namespace shardline {
namespace {

// The labels that some position predicts: all except those of a row's first token and the ignored ones.
int64_t counting_labels(const at::Tensor& labels) {
  if (labels.size(1) < 2) return 0;
  return labels.slice(1, 1).ne(kNoLabel).sum().item<int64_t>();
}

// Throws unless the values of all rows, which `what` names ("id"), are below `count`. is_label: kNoLabel is allowed,
// too. ahead: by how many tokens a row's value is ahead of the row's token.
void check_range(const Batch& batch, const at::Tensor& values, const char* what, int64_t count, bool is_label,
                 int64_t ahead, const std::string& rule) {
  const at::Tensor dense = values.contiguous();
  const auto* value = dense.const_data_ptr<int64_t>();
  int64_t segment = 0, sample = 0;
  for (int64_t row = 0; row < dense.numel(); ++row) {
    while (row >= batch.rows.ends[segment]) ++segment;
    while (segment >= batch.segments_of({sample, 1}).end()) ++sample;
    if ((value[row] >= 0 && value[row] < count) || (is_label && value[row] == kNoLabel)) continue;
    const std::string source =
        sample < std::ssize(batch.sample_index) ? cat(" (sample ", batch.sample_index[sample], " of the data)") : "";
    throw DataError(cat("the batch: sample ", batch.first_sample + sample, source, ", token ",
                        batch.rows.places.const_data_ptr<int64_t>()[row] + ahead, " has the ", what, " ", value[row],
                        rule));
  }
}

SampleOrder order_of(SampleOrderOptions order, int64_t samples, const std::function<int64_t(int64_t)>& length_of) {
  order.samples = samples;
  std::vector<int64_t> lengths;
  if (order.group_by_length)
    for (int64_t sample = 0; sample < samples; ++sample) lengths.push_back(length_of(sample));
  return SampleOrder(order, std::move(lengths));
}

int64_t samples_of(const std::vector<TextDataset>& parts) {
  int64_t samples = 0;
  for (const TextDataset& part : parts) samples += part.size();
  return samples;
}

SampleOrderOptions with_parts(SampleOrderOptions order, const std::vector<TextDataset>& parts) {
  for (const TextDataset& part : parts) order.part_samples.push_back(part.size());
  return order;
}

// Returns the part that has this sample, and makes the sample's number relative to the part.
const TextDataset& part_of(const std::vector<TextDataset>& parts, int64_t& sample) {
  auto part = parts.begin();
  for (; sample >= part->size(); ++part) sample -= part->size();
  return *part;
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

Range Batch::segments_of(const Range& samples) const {
  if (sample_ends.empty()) return samples;
  const auto segments_before = [&](int64_t sample) { return sample == 0 ? 0 : sample_ends[sample - 1]; };
  const int64_t begin = segments_before(samples.begin);
  return {begin, segments_before(samples.end()) - begin};
}

EpochSource::EpochSource(int64_t samples, SampleOrderOptions order, const std::function<int64_t(int64_t)>& length_of)
    : samples_(samples), order_(order_of(order, samples, length_of)) {}

std::string EpochSource::mixture_digest() const {
  if (!mixture()) return "";
  std::string text = ", mixed";
  for (size_t part = 0; part < mixture()->parts(); ++part) text += cat(' ', mixture()->count(part));
  return text;
}

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

DatasetSource::DatasetSource(std::vector<TextDataset> parts, const SampleOrderOptions& order,
                             std::vector<std::string> names)
    : EpochSource(samples_of(parts), with_parts(order, parts),
                  [&](int64_t sample) { return part_of(parts, sample).tokens(sample); }),
      parts_(std::move(parts)),
      names_(std::move(names)) {
  SL_ASSERT(parts_.size() == std::max<size_t>(1, order.weights.size()), parts_.size(), " parts");
}

int64_t DatasetSource::dropped_tokens() const {
  int64_t tokens = 0;
  for (const TextDataset& part : parts_) tokens += part.dropped_tokens();
  return tokens;
}

std::string DatasetSource::describe() const {
  std::string text;
  for (size_t i = 0; i < parts_.size(); ++i)
    text += cat(names_.empty() ? "" : names_[i] + ": ", parts_[i].describe(), ", ");
  return cat(text, dropped_tokens(), " tokens left over");
}

std::string DatasetSource::digest() const {
  std::string text;
  for (const TextDataset& part : parts_) text += cat(text.empty() ? "" : "; ", part.digest());
  return cat(text, mixture_digest());
}

std::pair<const TextDataset*, std::vector<Range>> DatasetSource::find(int64_t sample) const {
  const TextDataset& part = part_of(parts_, sample);
  return {&part, part.parts(sample)};
}

void DatasetSource::read(const std::vector<int64_t>& samples, int64_t, Batch& batch) const {
  for (const int64_t sample : samples)
    for (const Range& run : find(sample).second) {
      batch.tokens += run.length;
      batch.weight += run.length - 1;  // the last token of a run predicts nothing
    }
  std::vector<std::pair<const TextDataset*, Range>> runs;
  std::vector<int64_t> ends;
  for (const int64_t sample : batch.sample_index) {
    const auto [part, runs_of_sample] = find(sample);
    for (const Range& run : runs_of_sample) {
      runs.emplace_back(part, run);
      ends.push_back((ends.empty() ? 0 : ends.back()) + run.length);
    }
    batch.sample_ends.push_back(std::ssize(runs));
  }
  batch.rows = rows_of_segments(std::move(ends), batch.first_sample, batch.sample_ends);
  batch.rows.labels = at::empty_like(batch.rows.ids);
  auto* ids = batch.rows.ids.mutable_data_ptr<int64_t>();
  auto* labels = batch.rows.labels.mutable_data_ptr<int64_t>();
  for (const auto& [part, run] : runs) {
    part->cache().read(run.begin, run.length, ids);
    std::copy_n(ids + 1, run.length - 1, labels);
    labels[run.length - 1] = kNoLabel;
    ids += run.length;
    labels += run.length;
  }
}

void FedSource::push(const at::Tensor& ids, const at::Tensor& labels) {
  const bool good = ids.dim() == 2 && ids.scalar_type() == at::kLong;
  const bool matching = !labels.defined() || (labels.sizes() == ids.sizes() && labels.scalar_type() == at::kLong);
  if (!good || !matching) {
    throw ConfigError(
        cat("a batch must consist of int64 ids [samples, length] and labels of the same shape and type; got ids ",
            ids.sizes(), " ", ids.scalar_type()));
  }
  waiting_.push_back({ids, labels.defined() ? labels : ids});
}

const FedSource::Fed& FedSource::at(int64_t step) const {
  const auto ahead = step - first_step_;
  if (ahead < 0 || ahead >= std::ssize(waiting_)) {
    throw RunError(cat("no batch was fed for step ", step, "; steps ", first_step_, " to ",
                       first_step_ + waiting_.size() - 1, " are available"));
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
