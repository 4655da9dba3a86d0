#include "models/program/layers/part_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "models/graph/autograd_layer.h"
#include "models/graph/row_losses.h"
#include "models/program/ops/cross_entropy_op.h"
#include "tensor_parallel/ops/class_loss.h"
#include "tensor_parallel/ops/cross_entropy.h"

namespace shardline {
namespace {

using LossKind = ProgramLossTerm::Kind;
using Predicts = ProgramUse::Predicts;

class PartLoss {
 public:
  PartLoss(const PartRun& run, const std::vector<c10::IValue>& made, const ProgramBatch& batch,
           const LossSettings& settings)
      : run_(run), made_(made), batch_(batch), program_(batch.program), settings_(settings) {}

  Border loss(MicrobatchContext& context) const {
    if (settings_.weight) return loss_of_head(context);
    const ProgramLoss& loss = program_.loss;
    const at::Tensor weight = loss.has(LossKind::whole)
                                  ? at::scalar_tensor(batch_.batch.segments(), batch_.batch.ids.options())
                                  : weight_of(batch_.batch, program_.use);
    at::Tensor sum;
    bool tokens_count = false;  // whether tokens without a label contribute
    std::vector<at::Tensor> counts = {weight.to(at::kDouble)};
    for (const auto& term : loss.terms) {
      const auto [input, target] = tensors_of(term);
      SL_ASSERT(!run_.output(place(term.input)) || term.kind == LossKind::cross_entropy, "a loss of divided numbers");
      at::Tensor part;
      if (term.kind == LossKind::cross_entropy) {
        const int64_t ignored = ignored_of(term);
        part = cross_entropy(term, input, target, ignored, context.label_smoothing);
        counts.push_back((target != ignored).sum().to(at::kDouble));
      } else if (term.kind == LossKind::added) {
        part = sum_of_rows(term.function, input, target);
      } else {
        const bool is_of_tokens = term.kind != LossKind::whole && program_.use.predicts != Predicts::segment;
        if (program_.use.predicts != Predicts::segment && batch_.source.is_padded())
          throw RunError(cat(program_.archive.path, ": its loss, ", loss.text,
                             ", counts padding, so all samples of a microbatch must have the same length"));
        if (is_of_tokens) tokens_count = true;
        const at::Tensor mean = term.kind == LossKind::whole ? input
                                : term.kind == LossKind::squared_error
                                    ? at::mse_loss(input, target)
                                    : at::binary_cross_entropy_with_logits(input, target);
        part = mean * weight;
      }
      sum = sum.defined() ? sum + part * term.factor : term.factor == 1 ? part : part * term.factor;
    }
    check_counts(on_host(at::stack(counts), "labels of a microbatch"), tokens_count);
    return summed_loss(sum, weight, context);
  }

 private:
  int place(int value) const {
    const auto& values = run_.whole().outputs;
    return int(std::ranges::find(values, value) - values.begin());
  }
  const c10::IValue& find(int value) const { return made_[place(value)]; }

  // The target that is not counted.
  int64_t ignored_of(const ProgramLossTerm& term) const {
    if (term.target < 0) return kNoLabel;
    return term.ignored_value >= 0 ? find(term.ignored_value).toInt() : term.ignored;
  }

  // The same for rows from which the head computes logits.
  Border loss_of_head(MicrobatchContext& context) const {
    const ProgramLossTerm& term = program_.loss.terms[0];
    const auto [input, target] = tensors_of(term);
    const int64_t ignored = ignored_of(term);
    const at::Tensor counts = target.ne(ignored), weight = weight_of(batch_.batch, program_.use);
    check_counts(on_host(at::stack({weight.to(at::kDouble), counts.sum().to(at::kDouble)}), "labels of a microbatch"),
                 false);
    check_classes(target, ignored, settings_.weight->value.size(0));
    Microbatch rows;
    rows.ids = target;
    rows.labels = at::where(counts, target, kNoLabel);
    MicrobatchContext of_head = context;
    of_head.batch = &rows;
    of_head.loss = {};
    of_head.loss_scale *= term.factor;
    const at::Tensor x = input.to(settings_.weight->value.scalar_type()).contiguous();
    const at::Tensor scaled = head_cross_entropy({}, x, *settings_.weight, settings_.bias, 0, of_head);
    context.loss = {of_head.loss.sum * term.factor, of_head.loss.weight};
    return scaled.defined() ? Border{scaled} : Border{};
  }

  at::Tensor cross_entropy(const ProgramLossTerm& term, const at::Tensor& logits, const at::Tensor& target,
                           int64_t ignored, double smoothing) const {
    const TensorParallel& tp = settings_.tp;
    if (const auto* classes = run_.output(place(term.input)))
      return split_cross_entropy_sum(
          tp, logits, target, {classes->count, split_range(classes->count, tp.size(), tp.rank()), ignored, smoothing});
    if (is_own_cross_entropy(logits, target, smoothing)) return own_cross_entropy_sum(logits, target, ignored);
    return at::cross_entropy_loss(logits, target, {}, at::Reduction::Sum, ignored, smoothing);
  }

  // counts: the data's number of labels, and that of each cross entropy.
  void check_counts(const at::Tensor& counts, bool tokens_count) const {
    const std::string &path = program_.archive.path, &text = program_.loss.text;
    const char* verb = program_.archive.verb();
    for (int64_t i = 1; i < counts.numel(); ++i)
      if (counts[i].item<double>() != counts[0].item<double>())
        throw RunError(cat(path, ": a part of its loss, ", text, ", counts ", counts[i].item<int64_t>(),
                           " labels of the ", counts[0].item<int64_t>(),
                           " that the data has, so the losses of microbatches do not add up to that of the batch; ",
                           verb, " it with one loss"));
    if (const int64_t labels = counts[0].item<int64_t>(); tokens_count && labels != most_labels())
      throw RunError(cat(path, ": its loss, ", text,
                         ", is a mean over all tokens in one part and over labels in another, and only ", labels,
                         " of the ", most_labels(),
                         " tokens have a label, so the losses of microbatches do not add up to that of the batch; give "
                         "every token a label, or ",
                         verb, " it with one loss"));
  }

  // The number of labels if every token that can have a label has one.
  int64_t most_labels() const {
    switch (program_.use.predicts) {
      case Predicts::next_row:
        return batch_.batch.tokens() - batch_.batch.segments();
      case Predicts::target_row:
        return batch_.target.segments() * batch_.target.length();  // nothing is padded here
      case Predicts::span:
        return batch_.batch.segments();
      default:
        return batch_.batch.tokens();
    }
  }

  at::Tensor exact(const at::Tensor& tensor) const { return settings_.in_half ? tensor.to(at::kFloat) : tensor; }

  // [samples, ...], or this as one dimension, without repeated samples.
  at::Tensor without_repeated(const at::Tensor& values) const {
    const RowGrid& grid = batch_.source;
    if (!grid.has_repeated()) return values;
    const bool is_of_samples = values.dim() > 0 && (values.size(0) == grid.samples() ||
                                                    (values.dim() == 1 && values.size(0) % grid.samples() == 0));
    if (!is_of_samples)
      throw RunError(cat(program_.archive.path, ": its loss, ", program_.loss.text,
                         ", is computed from values of sizes ", values.sizes(),
                         ", whose first size is not its number of samples, ", grid.samples(), ", but a microbatch has ",
                         grid.segments(), " samples; ", program_.archive.verb(),
                         " it with dynamic_shapes {0: Dim.AUTO}"));
    return values.narrow(0, 0, values.size(0) / grid.samples() * grid.segments());
  }

  // Returns the input and the target of a mean.
  std::pair<at::Tensor, at::Tensor> tensors_of(const ProgramLossTerm& term) const {
    at::Tensor input = exact(find(term.input).toTensor());
    if (term.kind == LossKind::whole) {
      if (batch_.source.has_repeated())
        throw RunError(cat(
            program_.archive.path, ": its loss, ", program_.loss.text, ", is computed for ", batch_.source.samples(),
            " samples at a time, but a microbatch has ", batch_.batch.segments(),
            "; use a number of samples that is a multiple of the global batch, set ",
            "training.dataloader_drop_last, or ", program_.archive.verb(), " it with dynamic_shapes {0: Dim.AUTO}"));
      return {input, {}};
    }
    if (term.target >= 0) {
      const at::Tensor target = find(term.target).toTensor();
      // A cross entropy does not count labels of repeated samples.
      if (term.kind != LossKind::cross_entropy) return {without_repeated(input), without_repeated(target)};
      // For answers, the rows of a segment are the classes.
      const bool is_answer = program_.use.predicts == Predicts::span && batch_.source.is_padded() && input.dim() == 2 &&
                             input.size(1) == batch_.source.length();
      if (is_answer) input = input.masked_fill(batch_.source.padding(), -std::numeric_limits<double>::infinity());
      return {input, target};
    }
    const bool by_segment = program_.use.predicts == Predicts::segment;
    const at::Tensor& labels = by_segment ? batch_.batch.targets : batch_.batch.labels;
    if (!by_segment) {
      const at::Tensor rows = batch_.grid_of(term.input).gathered(samples_first(program_, term.input, input));
      return {rows, program_.has_target() ? batch_.target.gathered(batch_.target.spread(labels)) : labels};
    }
    input = without_repeated(input);
    if (term.kind == LossKind::cross_entropy) return {input, labels};
    if (term.kind == LossKind::added) return {input.reshape({batch_.batch.segments(), -1}), labels};
    return {input.reshape(labels.sizes()), labels.to(settings_.floating)};
  }

  const PartRun& run_;
  const std::vector<c10::IValue>& made_;
  const ProgramBatch& batch_;
  const Program& program_;
  const LossSettings& settings_;
};

}  // namespace

Border loss_of_part(const PartRun& run, const std::vector<c10::IValue>& made, const ProgramBatch& batch,
                    const LossSettings& settings, MicrobatchContext& context) {
  return PartLoss(run, made, batch, settings).loss(context);
}

}  // namespace shardline
