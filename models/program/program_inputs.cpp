#include "models/program/program_inputs.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <utility>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "models/program/operators.h"
#include "tensor_parallel/kernels/aten/aten_random.h"

namespace shardline {
namespace {

using Predicts = ProgramUse::Predicts;

constexpr const char* kPositionIds = "position_ids";
constexpr std::array kOfRows = {"input_ids", "attention_mask", kPositionIds, "token_type_ids"};

// Labels from the tokens themselves, for programs that shift them: a row's label is the next token in its segment.
at::Tensor own_labels(const Microbatch& batch, const RowGrid& grid) {
  const at::Tensor next = grid.spread_once(batch.labels, kNoLabel);
  const auto none = at::full({grid.samples(), 1}, kNoLabel, next.options());
  return at::cat({none, next.narrow(1, 0, grid.length() - 1)}, 1);
}

// Whether a call takes elements of its first argument from other places.
bool moves_elements(const Graph& graph, const GraphNode& node) {
  static const std::set<std::string> always = {
      "aten::cat",  "aten::constant_pad_nd", "aten::gather", "aten::index_select",    "aten::pad",
      "aten::roll", "aten::select",          "aten::split",  "aten::split_with_sizes"};
  const auto& values = graph.values;
  if (node.name == "aten::slice" || node.name == "aten::narrow")
    return values[node.results[0].value].sizes != values[node.arguments[0].value].sizes;
  if (node.name != "aten::index") return always.contains(node.name);
  return std::ranges::any_of(node.arguments[1].items, [&](const GraphArgument& places) {
    return places.value >= 0 && values[places.value].dtype != at::kBool;  // a mask keeps the order
  });
}

// Whether a program shifts the labels of its tokens, or selects some of them: whether a call takes them from other
// places. Otherwise, its loss compares what it computes for each token with the label of the same token.
bool shifts_labels(const Program& program) {
  const auto* labels = program.argument("labels");
  if (!labels) return false;
  std::vector<bool> are_labels(program.graph().values.size());  // or computed from them
  are_labels[labels->value] = true;
  const auto has_labels = [&](const GraphArgument& given) {
    bool has = false;
    visit_values(given, [&](int value) { has = has || are_labels[value]; });
    return has;
  };
  for (const auto& node : program.graph().nodes) {
    const bool reads_sizes =
        node.name == kSizeOf || node.name.ends_with("_like") || node.name.starts_with("aten::new_");
    if (!node.is_operator || reads_sizes || std::ranges::none_of(node.arguments, has_labels)) continue;
    if (has_labels(node.arguments[0]) && moves_elements(program.graph(), node)) return true;
    for (const auto& result : node.results) are_labels[result.value] = !program.flow.is_trained[result.value];
  }
  return false;
}

at::Tensor on_device_of(const Microbatch& batch, std::vector<int64_t>& numbers) {
  return at::from_blob(numbers.data(), {std::ssize(numbers)}, at::kLong).clone().to(batch.ids.device());
}

std::vector<std::string> names_given(const ProgramUse& use, bool of_columns) {
  std::vector<std::string> names;
  if (!of_columns) names.assign(kOfRows.begin(), kOfRows.end());
  if (use.predicts == Predicts::span)
    names.insert(names.end(), {"start_positions", "end_positions"});
  else
    names.push_back("labels");
  if (use.predicts == Predicts::target_row) names.insert(names.end(), {"decoder_input_ids", "decoder_attention_mask"});
  return names;
}

// The labels of segments, and those of repeated samples, which are not counted.
at::Tensor unlabelled(const ProgramBatch& batch, const at::Tensor& of_segments) {
  if (!batch.source.has_repeated()) return of_segments;
  auto sizes = of_segments.sizes().vec();
  sizes[0] = batch.source.samples() - batch.source.segments();
  return at::cat({of_segments, at::full(sizes, kNoLabel, of_segments.options())});
}

// The first or last row of each answer. Answers that are elsewhere get the row after the end, which programs do not
// count.
at::Tensor places_of_answers(const ProgramBatch& batch, int64_t end) {
  SL_ASSERT(batch.batch.targets.defined(), "a loss without answers");
  const at::Tensor places = unlabelled(batch, batch.batch.targets.select(1, end));
  return places.masked_fill(places == kNoLabel, batch.source.length());
}

at::Tensor labels(const ProgramBatch& batch) {
  const Microbatch& rows = batch.batch;
  const auto& program = batch.program;
  switch (program.use.predicts) {
    case Predicts::segment:
      // Without targets, the loss is not used: any class will do.
      if (!rows.targets.defined())
        return at::zeros({batch.source.samples()}, rows.ids.options().dtype(program.label_dtype.value_or(at::kLong)));
      return unlabelled(batch, rows.targets.to(program.label_dtype.value_or(rows.targets.scalar_type())));
    case Predicts::target_row:  // without labels, the tokens so far are followed by one to be predicted
      return rows.labels.defined() ? batch.target.spread_once(rows.labels, kNoLabel) : batch.target.spread(rows.ids);
    case Predicts::next_row:
      SL_ASSERT(rows.labels.defined(), "a loss without labels");
      if (!shifts_labels(program)) return batch.source.spread_once(rows.labels, kNoLabel);
      return own_labels(rows, batch.source);
    default:
      SL_ASSERT(rows.labels.defined(), "a loss without labels");
      return batch.source.spread_once(rows.labels, kNoLabel);
  }
}

// The token before each token of the target.
at::Tensor shifted_target(const ProgramBatch& batch) {
  const at::Tensor ids = batch.target.spread(batch.batch.ids, batch.program.pad_id);
  const int64_t start = batch.program.use.start_id.value_or(0);
  const auto first = at::full({ids.size(0), 1}, start, ids.options());
  return at::cat({first, ids.narrow(1, 0, ids.size(1) - 1)}, 1);
}

// How many times the number of samples a size is, as spelled in files and by traced models; 1 if it is not a multiple.
int64_t parts_of_samples(const Program& program, const GraphSize& size) {
  const std::string& text = size.expression;
  for (const GraphSize& batch : program.batches)
    for (const auto& [begin, end] : {std::pair(std::string("Mul(Integer("), cat("), ", batch.expression, ")")),
                                     std::pair(std::string(), cat(" * ", batch.expression))}) {
      if (batch.expression.empty() || !text.starts_with(begin) || !text.ends_with(end)) continue;
      const std::string parts = text.substr(begin.size(), text.size() - begin.size() - end.size());
      const bool is_number = parts.size() < 10 && parts.find_first_not_of("0123456789") == std::string::npos;
      if (!parts.empty() && is_number) return std::stoll(parts);
    }
  return 1;
}

// The dimension that counts tokens after that of the samples has become the first.
int length_after_samples(const HiddenForm& form) {
  return form.length < form.batch ? form.length + 1 : form.length;
}

}  // namespace

RowGrid::RowGrid(const Microbatch& batch, Part part, int64_t samples, int64_t length)
    : segments_(batch.segments()),
      samples_(segments_ > 0 ? std::max(samples, segments_) : 0),
      length_(length),
      all_rows_(batch.tokens()) {
  const bool is_all = part == Part::all || batch.target_begins.empty();
  std::vector<Range> ranges;
  int64_t begin = 0, rows = 0;
  for (int64_t i = 0; i < segments_; ++i) {
    const int64_t first = is_all || part == Part::source ? begin : batch.target_begins[i];
    const int64_t end = is_all || part == Part::target ? batch.ends[i] : batch.target_begins[i];
    ranges.push_back({first, end - first});
    longest_ = std::max(longest_, end - first);
    rows += end - first;
    begin = batch.ends[i];
  }
  length_ = std::max(length_, longest_);
  is_padded_ = segments_ * length_ != rows;
  std::vector<int64_t> rows_of_part, places;
  for (int64_t i = 0; i < segments_; ++i)
    for (int64_t place = 0; place < ranges[i].length; ++place) {
      rows_of_part.push_back(ranges[i].begin + place);
      places.push_back(i * length_ + place);
    }
  if (!is_all) rows_ = on_device_of(batch, rows_of_part);
  if (is_padded_ || has_repeated()) places_ = on_device_of(batch, places);
  if (!has_repeated()) return;
  std::vector<int64_t> repeated(rows);
  std::iota(repeated.begin(), repeated.end(), int64_t{0});
  for (int64_t i = segments_; i < samples_; ++i)
    for (int64_t place = 0; place < ranges[0].length; ++place) {
      repeated.push_back(place);
      places.push_back(i * length_ + place);
    }
  repeated_ = on_device_of(batch, repeated);
  repeated_places_ = on_device_of(batch, places);
}

at::Tensor RowGrid::spread(const at::Tensor& rows, int64_t padding) const {
  if (!has_repeated()) return spread_once(rows, padding);
  const at::Tensor mine = rows_.defined() ? rows.index_select(0, rows_) : rows;
  return placed(mine.index_select(0, repeated_), repeated_places_, padding);
}

at::Tensor RowGrid::spread_once(const at::Tensor& rows, int64_t padding) const {
  return placed(rows_.defined() ? rows.index_select(0, rows_) : rows, places_, padding);
}

at::Tensor RowGrid::placed(const at::Tensor& rows, const at::Tensor& places, int64_t padding) const {
  auto sizes = rows.sizes().vec();
  sizes.insert(sizes.begin() + 1, length_);
  sizes[0] = samples_;
  if (!places.defined()) return rows.view(sizes);
  auto flat = rows.sizes().vec();
  flat[0] = samples_ * length_;
  return at::full(flat, padding, rows.options().requires_grad(false)).index_copy(0, places, rows).view(sizes);
}

at::Tensor RowGrid::with_repeated(const at::Tensor& of_segments) const {
  if (!has_repeated()) return of_segments;
  const at::Tensor first = of_segments.narrow(0, 0, 1);
  auto sizes = of_segments.sizes().vec();
  sizes[0] = samples_ - segments_;
  return at::cat({of_segments, first.expand(sizes)});
}

at::Tensor RowGrid::gathered(const at::Tensor& grid) const {
  const auto rows = grid.flatten(0, 1);
  return places_.defined() ? rows.index_select(0, places_) : rows;
}

at::Tensor RowGrid::among_rows(const at::Tensor& grid, const at::Tensor& others) const {
  const at::Tensor rows = gathered(grid);
  if (!rows_.defined()) return rows;
  const auto rest =
      others.defined() ? others : at::zeros({all_rows_, rows.size(1)}, rows.options().requires_grad(false));
  return rest.index_copy(0, rows_, rows);
}

at::Tensor RowGrid::padding() const {
  SL_ASSERT(is_padded(), "no padding");
  const auto none = at::ones({samples_ * length_}, places_.options().dtype(at::kBool));
  return none.index_fill(0, has_repeated() ? repeated_places_ : places_, 0).view({samples_, length_});
}

ProgramBatch::ProgramBatch(const Program& of, const Microbatch& rows)
    : program(of),
      batch(rows),
      source(rows, RowGrid::Part::source, of.fixed_samples, of.fixed_source()),
      target(rows, RowGrid::Part::target, of.fixed_samples, of.fixed_target()) {
  SL_ASSERT(of.has_target() != rows.target_begins.empty() || rows.ends.empty(), "segments with and without targets");
  const auto check = [&](int64_t has, int64_t takes, const char* what, int dimension) {
    if (takes > 0 && has > takes)
      throw RunError(cat(of.archive.path, ": a microbatch has ", has, what, ", but the program takes ", takes,
                         " because of the sizes with which it was exported; use fewer, or ", of.archive.verb(),
                         " it with dynamic_shapes {", dimension, ": Dim.AUTO}"));
  };
  check(rows.segments(), of.fixed_samples, " samples", 0);
  check(source.longest(), of.fixed_source(), " tokens in a sample", 1);
  if (of.has_target()) check(target.longest(), of.fixed_target(), " tokens in a target", 1);
}

std::optional<HiddenForm> hidden_form(const Program& program, int value) {
  const auto& [name, dtype, sizes] = program.graph().values[value];
  const auto counts_samples = [&](int i) { return program.counts(value, i, Counts::samples); };
  const int64_t parts = sizes.empty() || program.columns.empty() ? 1 : parts_of_samples(program, sizes[0]);
  HiddenForm form{.length = -1, .features = parts};
  while (parts == 1 && std::cmp_less(form.batch, sizes.size()) && counts_samples(form.batch) == false) ++form.batch;
  if (dtype != at::kFloat || std::cmp_equal(form.batch, sizes.size())) return {};
  if (parts == 1 && !counts_samples(form.batch)) return {};
  bool is_open = false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (std::cmp_equal(i, form.batch)) continue;
    const auto of_source = program.source_rows() == 1 ? false : program.counts(value, i, Counts::source);
    const auto of_target = program.counts(value, i, Counts::target);
    const bool is_number = sizes[i].expression.empty();
    // The number in [batch, number] may pass as features: all of them, even those at a sample's padding.
    const bool counts_tokens =
        parts == 1 && (of_source == true || of_target == true) && !(sizes.size() == 2 && is_number);
    if (counts_tokens && form.length < 0) {
      form.length = int(i);
      form.of_target = of_target == true;
    } else if (!is_number) {
      return {};
    } else {
      is_open |= !of_source || !of_target;
      form.features *= sizes[i].number;
    }
  }
  if (form.length < 0 && is_open && sizes.size() > 2) return {};
  return form;
}

at::Tensor samples_first(const HiddenForm& form, const at::Tensor& tensor) {
  const at::Tensor moved = tensor.movedim(form.batch, 0);
  return form.length < 0 ? moved : moved.movedim(length_after_samples(form), 1);
}

at::Tensor in_own_order(const HiddenForm& form, const at::Tensor& tensor) {
  const at::Tensor moved = form.length < 0 ? tensor : tensor.movedim(1, length_after_samples(form));
  return moved.movedim(0, form.batch);
}

at::Tensor samples_first(const Program& program, int value, const at::Tensor& tensor) {
  const auto form = hidden_form(program, value);
  return form && form->batch > 0 ? samples_first(*form, tensor) : tensor;
}

bool has_common_positions(const Program& program, const GraphInput& argument) {
  const auto& sizes = program.graph().values[argument.value].sizes;
  const bool is_one = sizes.size() == 2 && sizes[0].expression.empty() && sizes[0].number == 1;
  return (is_one || sizes.size() == 1) && program.given_to(argument) == kPositionIds;
}

std::vector<Counts> counts_of_argument(const Program& program, const GraphInput& argument) {
  const std::string& given = program.given_to(argument);
  std::vector<Counts> counts(program.graph().values[argument.value].sizes.size(), Counts::other);
  if (counts.empty()) return counts;
  if (!has_common_positions(program, argument)) counts[0] = Counts::samples;
  const bool is_labels = given == "labels" && program.use.predicts != Predicts::segment;
  const bool is_target = given == "decoder_input_ids" || given == "decoder_attention_mask" ||
                         (is_labels && program.use.predicts == Predicts::target_row);
  const bool is_source = is_labels || std::ranges::count(kOfRows, given) > 0;
  const size_t tokens = counts.size() - 1;  // [batch, length], or [length] of positions
  if (is_target || is_source) counts[tokens] = is_target ? Counts::target : Counts::source;
  return counts;
}

bool has_columns(const ProgramUse& use) {
  const auto known = names_given(use, /*of_columns=*/false);
  return std::ranges::any_of(use.inputs,
                             [&](const auto& input) { return std::ranges::count(known, input.second) == 0; });
}

bool is_given(const std::string& given, const ProgramUse& use) {
  return std::ranges::count(names_given(use, has_columns(use)), given) > 0 || is_column(given, use);
}

bool is_column(const std::string& given, const ProgramUse& use) {
  const bool is_named = std::ranges::any_of(use.inputs, [&](const auto& input) { return input.second == given; });
  return has_columns(use) && is_named && std::ranges::count(names_given(use, /*of_columns=*/true), given) == 0;
}

std::string given_names(const ProgramUse& use) {
  std::string names;
  for (const auto& name : names_given(use, has_columns(use))) names += cat(names.empty() ? "" : ", ", name);
  return names;
}

at::Tensor program_argument(const GraphInput& input, const ProgramBatch& batch, at::ScalarType floating) {
  const std::string& given = batch.program.given_to(input);
  const Microbatch& rows = batch.batch;
  if (!batch.program.columns.empty() && is_column(given, batch.program.use)) {
    const auto column = rows.columns.find(given);
    if (column == rows.columns.end()) throw RunError(cat("a microbatch has no column \"", given, "\""));
    const at::ScalarType dtype = *batch.program.graph().values[input.value].dtype;
    return batch.source.with_repeated(column->second.to(dtype == at::kFloat ? floating : dtype));
  }
  if (given == "input_ids") return batch.source.spread(rows.ids, batch.program.pad_id);
  if (given == "attention_mask") return batch.source.spread(at::ones_like(rows.ids));
  if (given == kPositionIds) {
    const at::Tensor positions = batch.source.spread(rows.positions);
    if (!has_common_positions(batch.program, input)) return positions;
    // Samples agree where they have tokens; padding has position 0.
    return positions.amax(0, batch.program.graph().values[input.value].sizes.size() == 2);
  }
  if (given == "token_type_ids")
    return batch.source.spread(rows.types.defined() ? rows.types : at::zeros_like(rows.ids));
  if (given == "decoder_attention_mask") return batch.target.spread(at::ones_like(rows.ids));
  if (given == "decoder_input_ids") return shifted_target(batch);
  if (given == "start_positions") return places_of_answers(batch, 0);
  if (given == "end_positions") return places_of_answers(batch, 1);
  SL_ASSERT(given == "labels", "the argument ", input.name, " has passed the checks");
  return labels(batch);
}

Microbatch sample_batch(const Program& program, const at::Tensor& ids, int64_t target_length) {
  const int64_t samples = ids.size(0), length = ids.size(1);
  Microbatch batch = causal_microbatch(ids, ids, at::arange(samples));
  batch.columns = zero_columns(program, samples);
  switch (program.use.predicts) {
    case Predicts::next_row:
      break;
    case Predicts::segment: {
      using Kind = ProgramLossTerm::Kind;
      const auto* labels = program.argument("labels");
      const bool is_number = labels ? program.label_dtype && c10::isFloatingType(*program.label_dtype)
                             : program.loss.has(Kind::added)
                                 ? program.use.labels_are_numbers.value_or(program.labels == 1)
                                 : program.loss.has(Kind::squared_error) || program.loss.has(Kind::binary);
      const bool is_list =
          labels ? program.graph().values[labels->value].sizes.size() == 2 : is_number && program.labels > 1;
      batch.labels = at::Tensor();
      batch.targets = at::zeros({samples}, is_number ? at::kFloat : at::kLong);
      if (is_list) batch.targets = batch.targets.unsqueeze(1).repeat({1, program.labels});
      break;
    }
    case Predicts::span:
      batch.labels = at::Tensor();
      batch.targets = at::zeros({samples, 2}, at::kLong);
      break;
    case Predicts::target_row:
      for (const int64_t end : batch.ends) batch.target_begins.push_back(end - target_length);
      SL_ASSERT(target_length < length, "a sample without source");
      [[fallthrough]];
    default:
      batch.labels = program.use.predicts == Predicts::row ? at::zeros_like(batch.ids) : batch.ids.clone();
  }
  if (!batch.target_begins.empty()) batch.labels.masked_fill_(batch.positions < length - target_length, kNoLabel);
  return batch;
}

Microbatch sample_batch(const Program& program, int64_t samples, int64_t source, int64_t target, int64_t id) {
  if (program.fixed_source() > 0) source = program.fixed_source();
  if (program.fixed_target() > 0) target = program.fixed_target();
  if (!program.has_target()) target = 0;
  return sample_batch(program, at::full({samples, source + target}, id, at::kLong), target);
}

std::map<std::string, at::Tensor> zero_columns(const Program& program, int64_t samples) {
  std::map<std::string, at::Tensor> columns;
  for (const auto& column : program.columns) {
    std::vector<int64_t> sizes = {samples};
    sizes.insert(sizes.end(), column.sizes.begin(), column.sizes.end());
    columns.emplace(column.name, at::zeros(sizes, column.dtype));
  }
  return columns;
}

at::Tensor weight_of(const Microbatch& batch, const ProgramUse& use) {
  if (use.predicts != Predicts::segment && use.predicts != Predicts::span) return (batch.labels != kNoLabel).sum();
  const at::Tensor& targets = batch.targets;
  if (targets.is_floating_point()) return at::scalar_tensor(targets.size(0), targets.options().dtype(at::kLong));
  return targets.dim() == 1 ? (targets != kNoLabel).sum() : (targets != kNoLabel).all(1).sum();
}

DropoutRows grid_rows(DropoutRows rows, const RowGrid& grid) {
  rows.samples = grid.spread(rows.samples).flatten();
  rows.places = grid.spread(rows.places).flatten();
  rows.first_token = 0;
  rows.tokens = rows.samples.numel();
  return rows;
}

at::Tensor dropped_pairs(const at::Tensor& x, const DropoutRows& rows, const Microbatch& batch, const RowGrid& queries,
                         const RowGrid& keys, const at::Tensor& own_heads) {
  // Element numbers must be below 2^50: 1024 heads of 2^20 places.
  constexpr int64_t kHeads = 1024;
  const int64_t heads = x.size(1);
  if (heads > kHeads || batch.tokens() > kDroppedPlaces || x.size(2) != queries.length() || x.size(3) != keys.length())
    throw RunError(cat("dropout on a tensor of sizes ", x.sizes(), " cannot be drawn"));
  const auto like = batch.ids.options();
  const auto sample = queries.with_repeated(batch.segment_samples).view({-1, 1, 1, 1});
  const auto query = queries.spread(batch.places).unsqueeze(1).unsqueeze(3);
  const auto key = keys.spread(batch.places).unsqueeze(1).unsqueeze(1);
  const auto numbers = own_heads.defined() ? own_heads : at::arange(heads, like);
  const auto element = (numbers.view({-1, 1, 1}) * kDroppedPlaces + query) * kDroppedPlaces + key;
  const double keeps = 1 - rows.probability;
  const auto kept = aten::random_keep({.seed = rows.seed, .op = rows.op, .step = rows.step}, sample, element, keeps);
  return x * kept.to(x.scalar_type()).div_(keeps);
}

at::Tensor dropped_features(const at::Tensor& x, const DropoutRows& rows, const at::Tensor& features, int64_t all) {
  const double keeps = 1 - rows.probability;
  const auto kept = aten::random_keep({.seed = rows.seed, .op = rows.op, .step = rows.step}, rows.samples.unsqueeze(1),
                                      rows.places.unsqueeze(1) * all + features, keeps);
  return x * kept.to(x.scalar_type()).div_(keeps).view(x.sizes());
}

}  // namespace shardline
