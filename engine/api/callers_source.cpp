#include "engine/api/callers_source.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"

namespace shardline {
namespace {

using nlohmann::json;

template <class T>
at::Tensor view_of(const T* values, const std::vector<int64_t>& sizes, at::ScalarType type) {
  return values ? at::from_blob(const_cast<T*>(values), sizes, type) : at::Tensor();
}

[[noreturn]] void refuse(const std::string& what) {
  throw DataError(what);
}

// Keeps a mistake that one rank finds, so that all ranks report it.
template <class Make>
SampleTensors with_mistake(const Make& make) {
  try {
    return make();
  } catch (const DataError& error) {
    return {.mistake = error.what()};
  }
}

int64_t count_of(const SampleTensors& samples) {
  return (samples.ids.defined() ? samples.ids : samples.features).size(0);
}

int64_t length_of(const SampleTensors& samples) {
  return (samples.ids.defined() ? samples.ids : samples.features).size(1);
}

// What the other ranks need to know, as JSON: the sizes of the caller's samples, or the mistake in them.
json described(const SampleTensors& samples) {
  if (!samples.mistake.empty()) return {{"error", samples.mistake}};
  json text = {{"count", count_of(samples)}, {"length", length_of(samples)}};
  for (const auto& [name, tensor] : {std::pair{"ids", samples.ids},
                                     {"features", samples.features},
                                     {"labels", samples.labels},
                                     {"targets", samples.targets}})
    if (tensor.defined())
      text[name] = {{"sizes", tensor.sizes().vec()}, {"integers", tensor.scalar_type() == at::kLong}};
  return text;
}

// The description without the number of samples.
json form_of(json description) {
  description.erase("count");
  for (auto& [name, part] : description.items())
    if (part.is_object()) part["sizes"].erase(0);
  return description;
}

at::Tensor received(const json& description, const char* name, const at::Tensor& mine, Communicator& replica) {
  if (!description.contains(name)) return {};
  const json& part = description.at(name);
  const auto type = part.at("integers").get<bool>() ? at::kLong : at::kDouble;
  at::Tensor all =
      replica.rank() == 0 ? mine.contiguous() : at::empty(part.at("sizes").get<std::vector<int64_t>>(), type);
  if (all.numel() > 0) replica.broadcast(all, 0, {.what = "samples of the program"})->wait();
  return all;
}

at::Tensor part_of(const at::Tensor& all, const Range& samples) {
  return all.defined() ? all.narrow(0, samples.begin, samples.length) : all;
}

SampleTensors part_of(const SampleTensors& all, const Range& samples) {
  return {part_of(all.ids, samples), part_of(all.features, samples), part_of(all.labels, samples),
          part_of(all.targets, samples)};
}

Microbatch rows_of(const SampleTensors& samples, const ModelSpec& spec, int64_t first_sample) {
  const int64_t count = count_of(samples), length = length_of(samples);
  const at::Tensor ids = samples.ids.defined() ? samples.ids : at::zeros({count, length}, at::kLong);
  const bool are_next = samples.labels.defined() && spec.predicts_next;
  Microbatch rows = causal_microbatch(ids, are_next ? samples.labels : at::Tensor(),
                                      at::arange(first_sample, first_sample + count, at::kLong));
  if (samples.labels.defined() && !are_next) rows.labels = samples.labels.reshape({-1});
  if (samples.features.defined()) rows.features = samples.features.reshape({count * length, -1});
  rows.targets = samples.targets;
  return rows;
}

SampleTensors views_of(const Samples& s) {
  if (s.count < 0 || s.length < 1) refuse(cat("count ", s.count, " and length ", s.length, "; give at least 0 and 1"));
  if (s.features && s.width < 1) refuse(cat("features have the width ", s.width, "; give at least 1"));
  if (s.targets && s.outputs < 1) refuse(cat("targets have ", s.outputs, " outputs; give at least 1"));
  if (!!s.labels + !!s.classes + !!s.targets > 1) refuse("give one of labels, classes and targets");
  SampleTensors tensors{.ids = view_of(s.ids, {s.count, s.length}, at::kLong),
                        .features = view_of(s.features, {s.count, s.length, s.width}, at::kDouble),
                        .labels = view_of(s.labels, {s.count, s.length}, at::kLong),
                        .targets = view_of(s.classes, {s.count}, at::kLong)};
  if (s.targets) tensors.targets = view_of(s.targets, {s.count, s.outputs}, at::kDouble);
  return tensors;
}

SampleTensors inputs_of(const at::Tensor& inputs) {
  if (at::isIntegralType(inputs.scalar_type(), /*includeBool=*/false)) {
    if (inputs.dim() != 2) refuse(cat("ids are [samples, length]; got ", inputs.sizes()));
    return {.ids = inputs.to(at::kCPU, at::kLong)};
  }
  if (inputs.dim() != 2 && inputs.dim() != 3)
    refuse(cat("features are [samples, width] or [samples, length, width]; got ", inputs.sizes()));
  return {.features = (inputs.dim() == 2 ? inputs.unsqueeze(1) : inputs).detach().to(at::kCPU, at::kDouble)};
}

void add_labels(SampleTensors& tensors, const at::Tensor& inputs, const at::Tensor& labels) {
  const bool are_numbers = !at::isIntegralType(labels.scalar_type(), /*includeBool=*/false);
  if (labels.dim() < 1 || labels.size(0) != inputs.size(0))
    refuse(cat("there are ", inputs.size(0), " samples, but labels are ", labels.sizes()));
  const at::Tensor here = labels.detach().to(at::kCPU, are_numbers ? at::kDouble : at::kLong);
  if (are_numbers)
    tensors.targets = here.reshape({here.size(0), -1});
  else if (here.dim() == 1)
    tensors.targets = here;
  else if (here.sizes() == inputs.sizes())
    tensors.labels = here;
  else
    refuse(cat("labels have the shape [samples], or that of the ids, ", inputs.sizes(), "; got ", labels.sizes()));
}

// The first value that is not from 0 to count - 1, nor kNoLabel in labels.
std::optional<int64_t> first_outside(const at::Tensor& values, int64_t count, bool are_labels) {
  if (!values.defined()) return {};
  at::Tensor outside = values.lt(0).logical_or(values.ge(count));
  if (are_labels) outside = outside.logical_and(values.ne(kNoLabel));
  const at::Tensor found = values.masked_select(outside);
  return found.numel() == 0 ? std::nullopt : std::optional(found[0].item<int64_t>());
}

std::string mistake_in_labels(const SampleTensors& samples, const ModelSource& model) {
  const HeadChoice& head = model.head;
  if (head.kind != HeadChoice::Kind::sequence_classification) {
    if (!samples.labels.defined()) return cat("the task \"", task_name(head.kind), "\" needs labels of the tokens");
    const int64_t count = model.spec.row_labels > 0 ? model.spec.row_labels : model.spec.vocab_size;
    const auto label = first_outside(samples.labels, count, /*are_labels=*/true);
    return label ? cat("the label ", *label, " is not one of ", count) : "";
  }
  const at::Tensor& targets = samples.targets;
  if (head.problem == HeadChoice::Problem::single_label) {
    if (!targets.defined() || targets.is_floating_point()) return "the model needs the class of each sample";
    const auto label = first_outside(targets, head.labels, /*are_labels=*/true);
    return label ? cat("the class ", *label, " is not one of the model's ", head.labels) : "";
  }
  if (!targets.defined() || !targets.is_floating_point() || targets.size(1) != head.labels)
    return cat("the model needs ", head.labels, " numbers for each sample as targets");
  return "";
}

}  // namespace

SampleTensors tensors_of(const Samples& samples) {
  return with_mistake([&] { return views_of(samples); });
}

SampleTensors tensors_of(const at::Tensor& inputs, const at::Tensor& labels) {
  return with_mistake([&] {
    SampleTensors tensors = inputs_of(inputs);
    if (labels.defined()) add_labels(tensors, inputs, labels);
    return tensors;
  });
}

std::string mistake_in(const SampleTensors& samples, const ModelSource& model, bool labelled) {
  if (!samples.mistake.empty()) return samples.mistake;
  if (samples.ids.defined() == samples.features.defined()) return "give either ids or features";
  if (samples.features.defined() && samples.features.size(2) != model.features)
    return model.features == 0 ? "the model takes ids, not features"
                               : cat("the model takes ", model.features, " features; got ", samples.features.sizes());
  if (samples.ids.defined() && model.features > 0) return cat("the model takes ", model.features, " features, not ids");
  if (length_of(samples) > model.spec.max_positions)
    return cat("the model has ", model.spec.max_positions, " positions, but samples are ", length_of(samples), " long");
  if (const auto id = first_outside(samples.ids, model.spec.vocab_size, /*are_labels=*/false))
    return cat("the id ", *id, " is not one of the model's vocabulary of ", model.spec.vocab_size);
  return labelled ? mistake_in_labels(samples, model) : "";
}

CallersSource::CallersSource(const SampleTensors& mine, const ModelSpec& spec, const RankGroups& groups,
                             int64_t first_step, int64_t most)
    : spec_(spec), groups_(groups), first_step_(first_step), most_(most) {
  const bool gives = groups.mp->rank() == 0;
  const auto all = gather_strings(*groups.world, gives ? described(mine).dump() : "");
  json own, first;
  for (int rank = 0; rank < groups.mesh.size(); ++rank) {
    if (all[rank].empty()) continue;
    const json one = json::parse(all[rank]);
    if (one.contains("error"))
      throw AllRanks<DataError>(cat("the samples of rank ", rank, ": ", one.at("error").get<std::string>()));
    if (first.is_null()) first = one;
    if (one.at("count") != first.at("count") || form_of(one) != form_of(first))
      throw AllRanks<DataError>(cat("the samples of rank ", rank, " are ", one.dump(), ", but those of rank 0 ",
                                    first.dump(), "; every replica must give as many samples in the same form"));
    if (groups.mesh.at(rank).d == groups.coordinates.d) own = one;
  }
  count_ = own.at("count");
  if (count_ == 0) throw AllRanks<DataError>("there are no samples; give at least one on each replica");
  Communicator& replica = *groups.mp;
  samples_ = {received(own, "ids", mine.ids, replica), received(own, "features", mine.features, replica),
              received(own, "labels", mine.labels, replica), received(own, "targets", mine.targets, replica)};
  for (int64_t step = 0; step < steps(); ++step)
    weights_.push_back(gives ? weight_of(part_of(samples_, samples_of(first_step_ + step))) : 0);
  const at::Tensor sums = at::tensor(weights_, at::kLong);
  groups.world->all_reduce(sums, {.what = "labels of the program's samples"})->wait();
  weights_.assign(sums.const_data_ptr<int64_t>(), sums.const_data_ptr<int64_t>() + sums.numel());
}

Range CallersSource::samples_of(int64_t step) const {
  const int64_t begin = (step - first_step_) * most_;
  SL_ASSERT(begin >= 0 && begin < count_, "step ", step, " of ", count_, " samples from step ", first_step_);
  return {begin, std::min(most_, count_ - begin)};
}

int64_t CallersSource::samples_in_step(int64_t step) const {
  return samples_of(step).length * groups_.mesh.d();
}

int64_t CallersSource::weight_of(const SampleTensors& samples) const {
  if (samples.targets.defined())
    return samples.targets.is_floating_point() ? samples.targets.size(0)
                                               : samples.targets.ne(kNoLabel).sum().item<int64_t>();
  if (!samples.labels.defined()) return 0;
  const at::Tensor counted = spec_.predicts_next ? samples.labels.slice(1, 1) : samples.labels;
  return counted.ne(kNoLabel).sum().item<int64_t>();
}

Batch CallersSource::batch(int64_t step, const BatchSlice& slice) {
  const Range mine = samples_of(step);
  Batch batch{.first_sample = slice.first,
              .global_samples = samples_in_step(step),
              .tokens = samples_in_step(step) * length_of(samples_),
              .weight = weights_[step - first_step_]};
  SL_ASSERT(slice.first == groups_.coordinates.d * mine.length && slice.count == mine.length, "slice ", slice.first,
            " + ", slice.count, " of ", mine.length);
  for (int64_t i = 0; i < mine.length; ++i) batch.sample_index.push_back(slice.first + i);
  batch.rows = rows_of(part_of(samples_, mine), spec_, slice.first);
  return batch;
}

}  // namespace shardline
