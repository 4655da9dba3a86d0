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
#include <utility>

#include "core/error.h"
#include "engine/data/examples/microbatch_rows.h"

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

const std::vector<TensorColumn>& columns_of(const ModelSource& model) {
  static const std::vector<TensorColumn> none;
  return model.exported ? model.exported->program->columns : none;
}

std::string names_of(const std::vector<TensorColumn>& columns) {
  std::string names;
  for (const auto& column : columns) names += cat(names.empty() ? "" : ", ", column.name);
  return names;
}

bool has_target(const ModelSource& model) {
  return model.head.kind == HeadChoice::Kind::seq2seq_lm;
}

const at::Tensor& inputs_in(const SampleTensors& samples) {
  if (!samples.columns.empty()) return samples.columns.begin()->second;
  return samples.ids.defined() ? samples.ids : samples.features;
}

int64_t count_of(const SampleTensors& samples) {
  return inputs_in(samples).size(0);
}

// The number of rows of each sample, not counting its target's.
int64_t length_of(const SampleTensors& samples, const ModelSource& model) {
  return samples.columns.empty() ? inputs_in(samples).size(1) : model.exported->program->source_rows();
}

// All tensors by name. Columns have a prefix, so that their names differ from the other tensors'.
std::map<std::string, at::Tensor> named(const SampleTensors& samples) {
  std::map<std::string, at::Tensor> all;
  for (const auto& [name, tensor] : {std::pair{"ids", samples.ids},
                                     {"features", samples.features},
                                     {"labels", samples.labels},
                                     {"targets", samples.targets}})
    if (tensor.defined()) all[name] = tensor;
  for (const auto& [name, tensor] : samples.columns) all["column " + name] = tensor;
  return all;
}

// What the other ranks need to know, as JSON: the sizes of the caller's samples, or the mistake in them.
json described(const SampleTensors& samples) {
  if (!samples.mistake.empty()) return {{"error", samples.mistake}};
  json text = {{"count", count_of(samples)}};
  for (const auto& [name, tensor] : named(samples))
    text[name] = {{"sizes", tensor.sizes().vec()}, {"type", int(tensor.scalar_type())}};
  return text;
}

// The description without the number of samples.
json form_of(json description) {
  description.erase("count");
  for (auto& [name, part] : description.items())
    if (part.is_object()) part["sizes"].erase(0);
  return description;
}

// Returns the samples of the replica's first rank, which passes them as `mine`.
SampleTensors received(const json& description, const SampleTensors& mine, Communicator& replica) {
  const auto own = replica.rank() == 0 ? named(mine) : std::map<std::string, at::Tensor>();
  const auto tensor = [&](const std::string& name) {
    if (!description.contains(name)) return at::Tensor();
    const json& part = description.at(name);
    at::Tensor all = replica.rank() == 0 ? own.at(name).contiguous()
                                         : at::empty(part.at("sizes").get<std::vector<int64_t>>(),
                                                     at::ScalarType(part.at("type").get<int>()));
    if (all.numel() > 0) replica.broadcast(all, 0, {.what = "samples of the program"})->wait();
    return all;
  };
  SampleTensors all{.ids = tensor("ids"), .features = tensor("features")};
  const std::string of_column = "column ";
  for (const auto& [name, part] : description.items())
    if (name.starts_with(of_column)) all.columns[name.substr(of_column.size())] = tensor(name);
  all.labels = tensor("labels");
  all.targets = tensor("targets");
  return all;
}

at::Tensor part_of(const at::Tensor& all, const Range& samples) {
  return all.defined() ? all.narrow(0, samples.begin, samples.length) : all;
}

SampleTensors part_of(const SampleTensors& all, const Range& samples) {
  SampleTensors part{.ids = part_of(all.ids, samples),
                     .features = part_of(all.features, samples),
                     .labels = part_of(all.labels, samples),
                     .targets = part_of(all.targets, samples)};
  for (const auto& [name, column] : all.columns) part.columns[name] = part_of(column, samples);
  return part;
}

// The rows of each source, followed by a row for each label of its target other than kNoLabel.
Microbatch rows_with_targets(const at::Tensor& ids, const at::Tensor& labels, int64_t first_sample) {
  const int64_t count = ids.size(0), length = ids.size(1);
  const at::Tensor sources = ids.contiguous(), targets = labels.contiguous();
  std::vector<int64_t> all, of_rows, ends, begins;
  for (int64_t sample = 0; sample < count; ++sample) {
    const int64_t* source = sources.const_data_ptr<int64_t>() + sample * length;
    const int64_t* target = targets.const_data_ptr<int64_t>() + sample * targets.size(1);
    all.insert(all.end(), source, source + length);
    of_rows.insert(of_rows.end(), length, kNoLabel);
    begins.push_back(std::ssize(all));
    for (int64_t i = 0; i < targets.size(1); ++i)
      if (target[i] != kNoLabel) {
        all.push_back(target[i]);
        of_rows.push_back(target[i]);
      }
    ends.push_back(std::ssize(all));
  }
  Microbatch rows = rows_of_segments(std::move(ends), first_sample);
  rows.ids = at::tensor(all, at::kLong);
  rows.labels = at::tensor(of_rows, at::kLong);
  rows.target_begins = std::move(begins);
  return rows;
}

Microbatch rows_of(const SampleTensors& samples, const ModelSource& model, int64_t first_sample) {
  const int64_t count = count_of(samples), length = length_of(samples, model);
  const at::Tensor ids = samples.ids.defined() ? samples.ids : at::zeros({count, length}, at::kLong);
  const bool are_next = samples.labels.defined() && model.spec.predicts_next;
  Microbatch rows = has_target(model) ? rows_with_targets(ids, samples.labels, first_sample)
                                      : causal_microbatch(ids, are_next ? samples.labels : at::Tensor(),
                                                          at::arange(first_sample, first_sample + count, at::kLong));
  if (samples.labels.defined() && !are_next && !has_target(model)) rows.labels = samples.labels.reshape({-1});
  if (samples.features.defined()) rows.features = samples.features.reshape({count * length, -1});
  rows.targets = samples.targets;
  rows.columns = samples.columns;
  return rows;
}

// Returns what is wrong with a column; if nothing is, converts the tensor to the column's type and returns "".
std::string mistake_in_column(const TensorColumn& column, at::Tensor& tensor) {
  std::vector<int64_t> sizes = {tensor.dim() > 0 ? tensor.size(0) : 1};
  sizes.insert(sizes.end(), column.sizes.begin(), column.sizes.end());
  const bool are_numbers = at::isFloatingType(tensor.scalar_type());
  if (tensor.sizes() != at::IntArrayRef(sizes) || (are_numbers && !at::isFloatingType(column.dtype))) {
    std::string wanted = "[samples";
    for (const int64_t size : column.sizes) wanted += cat(", ", size);
    return cat("the column ", column.name, " of the model is ", at::toString(column.dtype), " ", wanted, "]; got ",
               at::toString(tensor.scalar_type()), " ", tensor.sizes());
  }
  tensor = tensor.detach().to(at::kCPU, column.dtype);
  return "";
}

// Columns by name, as the model takes them.
SampleTensors columns_of(std::map<std::string, at::Tensor> given, const ModelSource& model) {
  const auto& columns = columns_of(model);
  if (columns.empty()) refuse("the model takes no columns of tensors");
  SampleTensors tensors;
  for (const auto& column : columns) {
    const auto found = given.find(column.name);
    if (found == given.end() || !found->second.defined())
      refuse(cat("the model takes the columns ", names_of(columns), "; ", column.name, " is missing"));
    if (const auto mistake = mistake_in_column(column, found->second); !mistake.empty()) refuse(mistake);
    if (!tensors.columns.empty() && found->second.size(0) != count_of(tensors))
      refuse(cat("the columns have ", count_of(tensors), " and ", found->second.size(0),
                 " samples; give the same number in each"));
    tensors.columns[column.name] = found->second;
    given.erase(found);
  }
  if (!given.empty())
    refuse(cat("the model takes the columns ", names_of(columns), "; ", given.begin()->first, " is not one of them"));
  return tensors;
}

// A tensor that is the only column.
SampleTensors only_column(const at::Tensor& inputs, const ModelSource& model) {
  const auto& columns = columns_of(model);
  if (columns.size() > 1)
    refuse(cat("the model takes the columns ", names_of(columns), "; give them as tensors by these names"));
  return columns_of({{columns[0].name, inputs}}, model);
}

SampleTensors views_of(const Samples& s, const ModelSource& model) {
  if (s.count < 0 || s.length < 1)
    refuse(cat("count must be at least 0 and length at least 1; got ", s.count, " and ", s.length));
  if (s.features && s.width < 1) refuse(cat("the width of features must be at least 1; got ", s.width));
  if (s.targets && s.outputs < 1) refuse(cat("targets must have at least one output; got ", s.outputs));
  if (!!s.labels + !!s.classes + !!s.targets > 1) refuse("give one of labels, classes and targets");
  SampleTensors tensors{.ids = view_of(s.ids, {s.count, s.length}, at::kLong),
                        .features = view_of(s.features, {s.count, s.length, s.width}, at::kDouble),
                        .labels = view_of(s.labels, {s.count, s.length}, at::kLong),
                        .targets = view_of(s.classes, {s.count}, at::kLong)};
  if (s.targets) tensors.targets = view_of(s.targets, {s.count, s.outputs}, at::kDouble);
  const auto& columns = columns_of(model);
  if (columns.empty() || !tensors.features.defined()) return tensors;
  std::vector<int64_t> sizes = {s.count};
  sizes.insert(sizes.end(), columns[0].sizes.begin(), columns[0].sizes.end());
  const at::Tensor numbers = std::exchange(tensors.features, {});
  int64_t wanted = s.count;
  for (const int64_t size : columns[0].sizes) wanted *= size;
  tensors.columns = only_column(numbers.numel() == wanted ? numbers.view(sizes) : numbers, model).columns;
  return tensors;
}

SampleTensors inputs_of(const at::Tensor& inputs, const ModelSource& model) {
  if (!columns_of(model).empty()) return only_column(inputs, model);
  if (at::isIntegralType(inputs.scalar_type(), /*includeBool=*/false)) {
    if (inputs.dim() != 2) refuse(cat("ids must be [samples, length]; got ", inputs.sizes()));
    return {.ids = inputs.to(at::kCPU, at::kLong)};
  }
  if (inputs.dim() != 2 && inputs.dim() != 3)
    refuse(cat("features must be [samples, width] or [samples, length, width]; got ", inputs.sizes()));
  return {.features = (inputs.dim() == 2 ? inputs.unsqueeze(1) : inputs).detach().to(at::kCPU, at::kDouble)};
}

void add_labels(SampleTensors& tensors, const at::Tensor& labels, const ModelSource& model) {
  const bool are_numbers = !at::isIntegralType(labels.scalar_type(), /*includeBool=*/false);
  if (labels.dim() < 1 || labels.size(0) != count_of(tensors))
    refuse(cat("there are ", count_of(tensors), " samples, but the labels have the shape ", labels.sizes()));
  const at::Tensor here = labels.detach().to(at::kCPU, are_numbers ? at::kDouble : at::kLong);
  if (are_numbers)
    tensors.targets = here.reshape({here.size(0), -1});
  else if (here.dim() == 1)
    tensors.targets = here;
  else if (here.dim() == 2 && (has_target(model) || (tensors.ids.defined() && here.sizes() == tensors.ids.sizes())))
    tensors.labels = here;
  else
    refuse(cat("labels must have the shape [samples], or that of the ids, ", inputs_in(tensors).sizes(), "; got ",
               labels.sizes()));
}

// The first value that is neither from 0 to count - 1 nor, in labels, kNoLabel.
std::optional<int64_t> first_outside(const at::Tensor& values, int64_t count, bool are_labels) {
  if (!values.defined()) return {};
  at::Tensor outside = values.lt(0).logical_or(values.ge(count));
  if (are_labels) outside = outside.logical_and(values.ne(kNoLabel));
  const at::Tensor found = values.masked_select(outside);
  return found.numel() == 0 ? std::nullopt : std::optional(found[0].item<int64_t>());
}

std::string mistake_in_targets(const SampleTensors& samples, const ModelSource& model) {
  const at::Tensor lengths = (samples.labels != kNoLabel).sum(1);
  if (lengths.numel() == 0) return "";
  if (lengths.min().item<int64_t>() == 0) return "the labels of a sample are all -100; each sample needs a target";
  const int64_t longest = length_of(samples, model) + lengths.max().item<int64_t>();
  return longest > model.spec.max_positions
             ? cat("the model has ", model.spec.max_positions, " positions, but a source ", "and its target have ",
                   longest, " tokens together")
             : "";
}

std::string mistake_in_labels(const SampleTensors& samples, const ModelSource& model) {
  const HeadChoice& head = model.head;
  if (head.kind != HeadChoice::Kind::sequence_classification) {
    if (!samples.labels.defined()) return cat("the task \"", task_name(head.kind), "\" needs a label for each token");
    const int64_t count = model.spec.row_labels > 0 ? model.spec.row_labels : model.spec.vocab_size;
    if (const auto label = first_outside(samples.labels, count, /*are_labels=*/true))
      return cat("the label ", *label, " is not one of the model's labels, 0 to ", count - 1);
    return has_target(model) ? mistake_in_targets(samples, model) : "";
  }
  const at::Tensor& targets = samples.targets;
  if (head.problem == HeadChoice::Problem::single_label) {
    if (!targets.defined() || targets.is_floating_point()) return "the model needs the class of each sample";
    const auto label = first_outside(targets, head.labels, /*are_labels=*/true);
    return label ? cat("the class ", *label, " is not one of the model's classes, 0 to ", head.labels - 1) : "";
  }
  if (!targets.defined() || !targets.is_floating_point() || targets.size(1) != head.labels)
    return cat("the model needs ", head.labels, " numbers for each sample as targets");
  return "";
}

}  // namespace

SampleTensors tensors_of(const Samples& samples, const ModelSource& model) {
  return with_mistake([&] { return views_of(samples, model); });
}

SampleTensors tensors_of(const at::Tensor& inputs, const at::Tensor& labels, const ModelSource& model) {
  return with_mistake([&] {
    SampleTensors tensors = inputs_of(inputs, model);
    if (labels.defined()) add_labels(tensors, labels, model);
    return tensors;
  });
}

SampleTensors tensors_of(const std::map<std::string, at::Tensor>& columns, const at::Tensor& labels,
                         const ModelSource& model) {
  return with_mistake([&] {
    SampleTensors tensors = columns_of(columns, model);
    if (labels.defined()) add_labels(tensors, labels, model);
    return tensors;
  });
}

std::string mistake_in(const SampleTensors& samples, const ModelSource& model, bool labelled) {
  if (!samples.mistake.empty()) return samples.mistake;
  if (const auto& columns = columns_of(model); !columns.empty() && samples.columns.empty())
    return cat("the model takes the columns ", names_of(columns), ", not ids");
  if (samples.columns.empty() && samples.ids.defined() == samples.features.defined())
    return "give either ids or features";
  if (samples.features.defined() && samples.features.size(2) != model.features)
    return model.features == 0 ? "the model takes ids, not features"
                               : cat("the model takes ", model.features, " features; got ", samples.features.sizes());
  if (samples.ids.defined() && model.features > 0) return cat("the model takes ", model.features, " features, not ids");
  if (const int64_t length = length_of(samples, model); length > model.spec.max_positions)
    return cat("the model has ", model.spec.max_positions, " positions, but the samples have the length ", length);
  if (const auto id = first_outside(samples.ids, model.spec.vocab_size, /*are_labels=*/false))
    return cat("the id ", *id, " is outside of the model's vocabulary of ", model.spec.vocab_size);
  return labelled ? mistake_in_labels(samples, model) : "";
}

CallersSource::CallersSource(const SampleTensors& mine, const ModelSource& model, const RankGroups& groups,
                             int64_t first_step, int64_t most)
    : model_(model), groups_(groups), first_step_(first_step), most_(most) {
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
      throw AllRanks<DataError>(cat("the samples of rank ", rank, " are ", one.dump(), ", but those of rank 0 are ",
                                    first.dump(),
                                    "; every replica must give the same number of samples in the same form"));
    if (groups.mesh.at(rank).d == groups.coordinates.d) own = one;
  }
  count_ = own.at("count");
  if (count_ == 0) throw AllRanks<DataError>("there are no samples; give at least one on each replica");
  Communicator& replica = *groups.mp;
  samples_ = received(own, mine, replica);
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
  const at::Tensor counted = model_.spec.predicts_next ? samples.labels.slice(1, 1) : samples.labels;
  return counted.ne(kNoLabel).sum().item<int64_t>();
}

Batch CallersSource::batch(int64_t step, const BatchSlice& slice) {
  const Range mine = samples_of(step);
  Batch batch{.first_sample = slice.first,
              .global_samples = samples_in_step(step),
              .tokens = samples_in_step(step) * length_of(samples_, model_),
              .weight = weights_[step - first_step_]};
  SL_ASSERT(slice.first == groups_.coordinates.d * mine.length && slice.count == mine.length, "slice ", slice.first,
            " + ", slice.count, " of ", mine.length);
  for (int64_t i = 0; i < mine.length; ++i) batch.sample_index.push_back(slice.first + i);
  if (has_target(model_)) batch.tokens += batch.weight;  // the labels are the targets' tokens
  batch.rows = rows_of(part_of(samples_, mine), model_, slice.first);
  return batch;
}

}  // namespace shardline
