#include "models/families/label_head.h"

#include <memory>

#include "core/error.h"
#include "core/model/layer.h"
#include "tensor_parallel/ops/elementwise.h"
#include "tensor_parallel/ops/label_loss.h"
#include "tensor_parallel/ops/linear.h"
#include "tensor_parallel/ops/picked_rows.h"

namespace shardline {
namespace {

class LabelHeadLayer : public Layer {
 public:
  LabelHeadLayer(const TransformerConfig& config, const HeadChoice& choice, const LabelHead& head,
                 const LayerBuild& build)
      : config_(config),
        choice_(choice),
        head_(head),
        tp_{build.tp, build.sequence_parallel},
        index_(build.index),
        params_(build.params),
        type_(params_.front()->value.scalar_type()) {}

  Border forward(const Border& input, MicrobatchContext& context) override {
    SL_ASSERT(context.mode != Mode::generate, "a head for labels cannot generate text");
    const Microbatch& batch = *context.batch;
    const at::Tensor rows = chosen_rows(batch);
    const int64_t count = count_of_rows(batch, rows);
    auto next = params_.begin();
    at::Tensor x = picked_rows(tp_, input[0], batch.tokens(), rows);
    if (!head_.norm.empty()) {
      Parameter &weight = **next++, &bias = **next++;
      x = layer_norm(tp_, x, count, weight, bias, config_.layer_norm_epsilon);
    }
    x = dropped(x.to(type_), context, rows, 0, head_.first_dropout);
    if (!head_.dense.empty()) {
      Parameter &weight = **next++, &bias = **next++;
      x = bias_activation(linear(x, context, weight, nullptr), bias, head_.activation);
    }
    x = dropped(x, context, rows, 1, head_.dropout);
    Parameter& weight = **next++;
    const at::Tensor logits = linear(x, context, weight, head_.classifier_bias ? *next : nullptr);
    const at::Tensor loss = loss_of(logits, count, context);
    if (context.mode == Mode::train) return {loss};
    return context.predicts ? Border{whole_logits(tp_, logits, count)} : Border{};
  }

 private:
  at::Tensor chosen_rows(const Microbatch& batch) const {
    switch (head_.rows) {
      case LabelHead::Rows::first:
        return first_rows(batch);
      case LabelHead::Rows::last:
        return last_rows(batch);
      default:
        return {};
    }
  }

  // Multiplies this rank's border rows by the whole weight.
  static at::Tensor linear(const at::Tensor& x, MicrobatchContext& context, Parameter& weight, Parameter* bias) {
    return column_linear({}, x, x.size(0), weight, bias, context.weight_grads);
  }

  at::Tensor dropped(const at::Tensor& x, const MicrobatchContext& context, const at::Tensor& rows, int site,
                     double probability) const {
    DropoutRows drops = dropout_rows(tp_, context, index_, site, probability);
    if (drops.probability == 0) return x;
    const int64_t count = count_of_rows(*context.batch, rows);
    drops.samples = values_of_rows(drops.samples, rows);
    drops.places = values_of_rows(drops.places, rows);
    drops.first_token = tokens_of_rows(tp_, count).begin;
    drops.tokens = count;
    return bias_dropout_add(tp_, x, count, nullptr, {}, drops);
  }

  at::Tensor loss_of(const at::Tensor& logits, int64_t count, MicrobatchContext& context) const {
    const Microbatch& batch = *context.batch;
    const bool by_row = choice_.kind == HeadChoice::Kind::token_classification;
    const at::Tensor& targets = by_row ? batch.labels : batch.targets;
    if (!targets.defined() && !logits.is_meta()) {
      SL_ASSERT(context.mode != Mode::train, "training without targets");
      return {};
    }
    if (choice_.kind == HeadChoice::Kind::question_answering) return answer_loss(tp_, logits, context);
    if (by_row || choice_.problem == HeadChoice::Problem::single_label)
      return class_loss(tp_, logits, count, targets, context);
    return (choice_.problem == HeadChoice::Problem::regression ? squared_loss : binary_loss)(tp_, logits, count,
                                                                                             targets, context);
  }

  TransformerConfig config_;
  HeadChoice choice_;
  LabelHead head_;
  TensorParallel tp_;
  int64_t index_;
  std::vector<Parameter*> params_;
  at::ScalarType type_;
};

}  // namespace

LabelHead::Rows rows_of_head(HeadChoice::Kind kind, LabelHead::Rows of_segment) {
  return kind == HeadChoice::Kind::sequence_classification ? of_segment : LabelHead::Rows::all;
}

LayerSpec label_head(const TransformerConfig& c, const SpecMaker& make, const HeadChoice& choice,
                     const LabelHead& head) {
  LayerSpec layer{.name = "head", .output = {}};
  if (!head.norm.empty()) layer.params = make.norm("norm", head.norm);
  const auto add = [&](ParamSpec param, bool deferred) {
    param.partial_over_t = make.sequence_parallel;
    param.deferred = deferred;
    param.may_be_missing = true;
    layer.params.push_back(std::move(param));
  };
  const auto weight = [&](const std::string& name, const std::string& hf, int64_t outputs) {
    return make.linear(name + ".weight", {outputs, c.n_embd}, c.initializer_range, {{.tensor = hf + ".weight"}});
  };
  if (!head.dense.empty()) {
    add(weight("dense", head.dense, c.n_embd), true);
    add(make.column_bias("dense.bias", {c.n_embd}, head.dense + ".bias"), false);
  }
  add(weight("classifier", head.classifier, choice.labels), true);
  if (head.classifier_bias) add(make.column_bias("classifier.bias", {choice.labels}, head.classifier + ".bias"), true);
  layer.code = cat(task_name(choice.kind), " ", choice.problem ? int(*choice.problem) : -1, " ", int(head.rows));
  layer.build = [c, choice, head](const LayerBuild& build) {
    return std::make_unique<LabelHeadLayer>(c, choice, head, build);
  };
  return layer;
}

}  // namespace shardline
