#include "tests/parity/faults.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "core/error.h"
#include "engine/data/dataset/batch_source.h"
#include "engine/plan/plan.h"
#include "engine/train/trainer.h"
#include "tests/parity/faulty_communicator.h"
#include "tests/parity/wrapped_layer.h"

namespace shardline::parity {
namespace {

// ---- collectives

// The calls that match a rule, counted so far.
struct Strikes {
  std::mutex mutex;
  std::map<std::thread::id, int64_t> in_step;  // calls since the step began, by rank: ranks are threads
  int64_t count = 0;
  std::string surprise;
};

// Selects every call for `what` (empty: any); with `calls`, only the one at `place` of the `calls` in a step.
Tampering communication(Damage damage, const std::string& group, const std::string& what, int64_t place = 0,
                        int64_t calls = 0) {
  const auto strikes = std::make_shared<Strikes>();
  const DamageRule rule = [=](const Call& call) {
    if (call.group != group || (!what.empty() && call.what != what)) return Damage::leave;
    const std::scoped_lock lock(strikes->mutex);
    const auto now = strikes->in_step.find(std::this_thread::get_id());
    const bool struck = calls == 0 || (now != strikes->in_step.end() && now->second++ == place);
    strikes->count += struck;
    return struck ? damage : Damage::leave;
  };
  const auto step_begins = [=](Batch&) {  // every rank reads its own
    const std::scoped_lock lock(strikes->mutex);
    const auto [now, is_first] = strikes->in_step.try_emplace(std::this_thread::get_id(), 0);
    if (calls > 0 && !is_first && now->second != calls)
      strikes->surprise = cat(now->second, " calls of \"", what, "\" in a step, not ", calls);
    now->second = 0;
  };
  const auto missed = [=] {
    return strikes->count == 0 ? cat("no call of \"", what, "\" in \"", group, "\" was struck") : strikes->surprise;
  };
  return {.world = [rule](const CommunicatorPtr& world) { return damaged(world, rule); },
          .batch = step_begins,
          .missed = missed};
}

// ---- layers

Tampering layer(const std::string& name, const Around& around) {
  return {.spec = [=](ModelSpec& spec, const Point&) {
    for (auto& one : spec.layers)
      if (one.name == name) wrap(one, around);
  }};
}

Tampering params(const std::function<void(ParamSpec&)>& edit) {
  return {.spec = [=](ModelSpec& spec, const Point&) {
    for (auto& one : spec.layers)
      for (auto& param : one.params) edit(param);
  }};
}

bool is_norm(const ParamSpec& param) {
  return param.name.starts_with("ln_");
}
bool is_whole_unit(const ParamSpec& param) {
  return param.name.starts_with("mlp.fc.") || param.name == "mlp.proj.weight";
}
bool ends_with_bias(const ParamSpec& param) {
  return param.name.ends_with(".bias");
}

// Runs the layer with an edited copy of its microbatch; what it keeps for its backward pass refers to the copy.
Around with_microbatch(const std::function<void(Microbatch&, int t)>& edit) {
  return [=](Layer& inner, const LayerBuild& build, const Border& input, MicrobatchContext& context) {
    static thread_local std::list<Microbatch> kept;
    const Microbatch* const real = context.batch;
    kept.push_back(*real);
    edit(kept.back(), build.tp->rank());
    context.batch = &kept.back();
    Border border = inner.forward(input, context);
    context.batch = real;
    return border;
  };
}

Around with_samples(const std::function<int64_t(int64_t)>& number) {
  return with_microbatch([=](Microbatch& batch, int) {
    for (at::Tensor* samples : {&batch.samples, &batch.segment_samples}) {
      *samples = samples->clone();
      for (int64_t i = 0; i < samples->numel(); ++i) (*samples)[i].fill_(number((*samples)[i].item<int64_t>()));
    }
  });
}

Border bias_on_every_rank(Layer& inner, const LayerBuild& build, const Border& input, MicrobatchContext& context) {
  Border border = inner.forward(input, context);
  return {border[0] + (build.tp->size() - 1) * parameter(build, "mlp.proj.bias").value};
}

Border tied_counted_twice(Layer& inner, const LayerBuild& build, const Border& input, MicrobatchContext& context) {
  auto& gradient = parameter(build, "lm_head.weight").grad;
  const auto before = gradient.clone();
  Border border = inner.forward(input, context);  // the head's products run in its forward pass
  gradient.add_(gradient - before);
  return border;
}

Border head_bias_on_every_rank(Layer& inner, const LayerBuild& build, const Border& input, MicrobatchContext& context) {
  auto& bias = parameter(build, "lm_head.bias").value;
  const auto real = bias.clone();
  bias.mul_(build.tp->size());
  Border border = inner.forward(input, context);
  bias.copy_(real);
  return border;
}

Border head_bias_counted_twice(Layer& inner, const LayerBuild& build, const Border& input, MicrobatchContext& context) {
  auto& gradient = parameter(build, "lm_head.bias").grad;
  const auto before = gradient.clone();
  Border border = inner.forward(input, context);
  gradient.add_(gradient - before);
  return border;
}

Border mean_of_means(Layer& inner, const LayerBuild&, const Border& input, MicrobatchContext& context) {
  const double scale = context.loss_scale;
  const auto counting = context.batch->labels.ne(kNoLabel).sum().item<int64_t>();
  if (counting > 0) context.loss_scale = 0.25 / static_cast<double>(counting);  // there are 4 microbatches
  Border border = inner.forward(input, context);
  context.loss_scale = scale;
  return border;
}

Border without_last_sample(Layer& inner, const LayerBuild&, const Border& input, MicrobatchContext& context) {
  const double scale = context.loss_scale;
  const auto& samples = context.batch->samples;
  if (samples.numel() > 0 && samples[-1].item<int64_t>() == 23) context.loss_scale = 0;  // the last of 24 samples
  Border border = inner.forward(input, context);
  context.loss_scale = scale;
  return border;
}

Border unscaled_on_one_rank(Layer& inner, const LayerBuild& build, const Border& input, MicrobatchContext& context) {
  const double scale = context.loss_scale;
  if (build.tp->rank() == 1) context.loss_scale /= 1024;  // the loss scale of the first steps
  Border border = inner.forward(input, context);
  context.loss_scale = scale;
  return border;
}

// ---- the data of tasks

// A fault that changes the batch as if it had been read wrongly.
Tampering reading(const std::function<void(Batch&)>& edit) {
  return {.batch = edit};
}

void shift_labels(Batch& batch) {
  batch.rows.labels = batch.rows.labels.roll(1);
}

// Gives a label to each row that has none.
void count_others(Batch& batch, const at::Tensor& labels) {
  batch.rows.labels = at::where(batch.rows.labels == kNoLabel, labels, batch.rows.labels);
  batch.weight = batch.rows.tokens();
}

// Each sample ends with a row of padding that its other rows see.
void pad(Batch& batch) {
  Microbatch& rows = batch.rows;
  const auto padded = [&](const at::Tensor& tensor, int64_t value) {
    if (!tensor.defined()) return tensor;
    std::vector<at::Tensor> parts;
    int64_t begin = 0;
    for (const int64_t end : rows.ends) {
      const auto of_sample = tensor.narrow(0, begin, end - begin);
      parts.push_back(of_sample);
      parts.push_back(value < 0 ? of_sample.narrow(0, end - begin - 1, 1) : at::full({1}, value, tensor.options()));
      begin = end;
    }
    return at::cat(parts);
  };
  constexpr int64_t kAsBefore = -1;
  for (at::Tensor* tensor : {&rows.ids, &rows.types}) *tensor = padded(*tensor, 0);
  rows.samples = padded(rows.samples, kAsBefore);
  rows.positions = rows.places = padded(rows.positions, kAsBefore);
  for (size_t i = 0; i < rows.ends.size(); ++i) rows.ends[i] += static_cast<int64_t>(i) + 1;
}

// The documents of each sample see each other.
void join_documents(Microbatch& batch, int) {
  std::vector<int64_t> ends, firsts;
  for (int64_t i = 0; i < batch.segments(); ++i) {
    const bool goes_on = i > 0 && batch.segment_samples[i].equal(batch.segment_samples[i - 1]);
    if (goes_on) {
      ends.back() = batch.ends[i];
    } else {
      ends.push_back(batch.ends[i]);
      firsts.push_back(i);
    }
  }
  const at::Tensor kept = at::tensor(firsts, at::kLong);
  batch.ends = std::move(ends);
  batch.segment_samples = batch.segment_samples.index_select(0, kept);
  batch.segment_places = batch.segment_places.index_select(0, kept);
}

// The first two samples of a microbatch see each other.
void join_samples(Microbatch& batch, int) {
  if (batch.segments() < 2) return;
  batch.ends.erase(batch.ends.begin());
  batch.segment_samples = batch.segment_samples.narrow(0, 1, batch.segments());
  batch.segment_places = batch.segment_places.narrow(0, 1, batch.segments());
}

// ---- the schedule

// Stage 0 mistakes microbatch 1 for microbatch 0 and vice versa in the forward pass.
void swap_microbatches(Plan& plan) {
  for (auto& instruction : plan.train.instructions[0])
    if (instruction.microbatch < 2 && (instruction.op == Op::forward || instruction.op == Op::send_activation))
      instruction.microbatch = 1 - instruction.microbatch;
}

void move_frozen(RankTrainer& trainer, int step) {
  if (step != 1) return;
  for (Parameter* parameter : trainer.parameters().stored())
    if (!parameter->spec->trainable) parameter->value.add_(1e-9);
}

}  // namespace

std::vector<Fault> planted_faults() {
  const Point t2 = {.t = 2}, t2_memory = {.t = 2, .optimize = "memory"}, d2 = {.d = 2};
  const Point p2 = {.p = 2, .pipeline = "simple", .microbatches = 4};
  const Point whole = {.t = 2, .units = "whole"}, whole_memory = {.t = 2, .optimize = "memory", .units = "whole"};
  // A sample is split between the ranks, so tokens on one rank attend to tokens on the other.
  const Point attention_memory = {.t = 2, .optimize = "memory", .units = "attention whole", .global_batch = 3};
  // Only differences of positions matter: a shift is visible where a rank's queries meet another rank's keys.
  const auto gptj = [](Point point) {
    point.model = "gptj";
    return point;
  };
  const auto with_dropout = [](Point point) {
    point.dropout = true;
    return point;
  };
  const auto packed = [](Point point) {
    point.packing = "packed";
    return point;
  };
  const auto task_point = [](const char* task) {
    return Point{.p = 2, .microbatches = 2, .model = "bert", .task = task};
  };
  const auto with_ignored = [](Point point) {
    point.ignored = true;
    return point;
  };
  const auto on_gpt2 = [](Point point) {
    point.model = "gpt2";
    return point;
  };
  const auto on_replicas = [](Point point) {
    point.d = 2;
    return point;
  };
  return {
      {"the all-reduce of one input gradient over T is dropped", t2,
       communication(Damage::drop, "tp", "reduce rows", 15, 22)},
      {"the all-reduce of one block's output over T is dropped", t2,
       communication(Damage::drop, "tp", "reduce rows", 4, 22)},
      {"a reduce-scatter over T only scatters", t2_memory, communication(Damage::drop, "tp", "reduce rows", 4, 22)},
      {"one gather of rows sees only its own rows", t2_memory, communication(Damage::drop, "tp", "gather rows", 3, 32)},
      {"the softmax adds up only this rank's words", t2, communication(Damage::drop, "tp", "gather_to_all")},
      {"a layer's gradients are not reduced over D", d2, communication(Damage::drop, "rdp", "gradients of h.2")},
      {"a layer's gradients are reduced over D twice", d2, communication(Damage::repeat, "rdp", "gradients of h.2")},
      {"gradients are averaged over D, not added", d2, communication(Damage::average, "rdp", "")},
      {"the two stages do not join a tied gradient", p2,
       communication(Damage::drop, "tie", "join the uses of a tied parameter")},
      {"each stage takes the norm of its own gradients", p2, communication(Damage::drop, "world", "gradient norm")},
      {"the other shards' updated values do not arrive",
       {.d = 2, .sharding = "ZeRO-1"},
       communication(Damage::drop, "rdp", "gather updated values")},
      {"one microbatch's gradients of a layer are not added over D",
       {.d = 2, .microbatches = 3, .sharding = "ZeRO-2"},
       communication(Damage::drop, "rdp", "gradients of h.2", 2, 9)},
      {"a layer is gathered for its backward from one shard only",
       {.d = 2, .sharding = "ZeRO-3"},
       communication(Damage::drop, "rdp", "gather values", 25, 36)},
      {"replicas of a shard keep their own gradients",
       {.d = 4, .sharding = "MiCS 2"},
       communication(Damage::drop, "replicas of a shard", "gradients of h.2")},
      {"a tied gradient is counted twice", p2, layer("head", tied_counted_twice)},
      {"norm gradients are scaled by T: complete, but added over T", t2, params([](ParamSpec& param) {
         if (is_norm(param)) param.partial_over_t = true;
       })},
      {"norm gradients of the own rows are taken for complete", t2_memory, params([](ParamSpec& param) {
         if (is_norm(param)) param.partial_over_t = false;
       })},
      {"a whole unit's gradient of the own rows is taken for complete", whole_memory, params([](ParamSpec& param) {
         if (is_whole_unit(param)) param.partial_over_t = false;
       })},
      {"a whole unit's gradient is scaled by T: complete, but added over T", whole, params([](ParamSpec& param) {
         if (is_whole_unit(param)) param.partial_over_t = true;
       })},
      {"whole attention sees only its own rows of q, k and v", attention_memory,
       communication(Damage::drop, "tp", "gather rows", 2, 27)},
      {"the gradient of whole attention's mix is that of the own rows alone", attention_memory,
       communication(Damage::drop, "tp", "gather rows", 13, 27)},
      {"biases and norms decay",
       {.microbatches = 2},
       params([](ParamSpec& param) {
         if (is_norm(param) || ends_with_bias(param)) param.decays = true;
       }),
       true},
      {"a bias is added on every T rank", t2, layer("h.1", bias_on_every_rank), true},
      {"one T rank turns its rows by the positions after theirs", gptj(attention_memory),
       layer("h.1", with_microbatch([](Microbatch& batch, int t) { batch.positions = batch.positions + (t == 1); }))},
      {"the head's bias is added on every T rank", gptj(t2), layer("head", head_bias_on_every_rank), true},
      {"the gradient of the head's bias is counted twice", gptj(p2), layer("head", head_bias_counted_twice)},
      {"the gradient of the whole head's bias is that of the own rows", gptj(whole_memory),
       params([](ParamSpec& param) {
         if (param.name == "lm_head.bias") param.partial_over_t = false;
       })},
      {"dropout masks are shifted by one sample", with_dropout({.microbatches = 2}),
       layer("h.3", with_samples([](int64_t sample) { return sample + 1; }))},
      {"a block's dropout masks are one position off", with_dropout({.microbatches = 2}),
       layer("h.3", with_microbatch([](Microbatch& batch, int) { batch.places = batch.places + 1; }))},
      {"dropout masks are numbered within the replica",
       with_dropout(d2),
       {.batch =
            [](Batch& batch) {
              for (const at::Tensor& samples : {batch.rows.samples, batch.rows.segment_samples})
                samples.sub_(batch.first_sample);
            }}},
      {"dropout masks are numbered within the stage",
       with_dropout(p2),
       {.spec =
            [](ModelSpec& spec, const Point&) {
              for (auto& one : spec.layers)
                one.build = [build = one.build](LayerBuild parts) {
                  parts.index %= 4;
                  return build(parts);
                };
            }}},
      {"two microbatches are swapped between stages", p2, {.plan = swap_microbatches}},
      {"the loss is a mean of the microbatches' means",
       {.microbatches = 4, .ignored = true},
       layer("head", mean_of_means)},
      {"the last sample's gradient is lost",
       {.microbatches = 24, .global_batch = 24},
       layer("head", without_last_sample)},
      {"labels are those of the tokens before", task_point("token-classification"), reading(shift_labels)},
      {"tokens without a label count as the first class", with_ignored(task_point("token-classification")),
       reading([](Batch& batch) { count_others(batch, batch.rows.labels * 0); })},
      {"prompts are predicted, too", on_gpt2(task_point("completions")),
       reading([](Batch& batch) { count_others(batch, batch.rows.ids); })},
      {"each sample has the class of the one before", task_point("sequence-classification"),
       reading([](Batch& batch) { batch.rows.targets = batch.rows.targets.roll(1); })},
      {"answers begin a token early, as if their windows had another offset", task_point("question-answering"),
       reading([](Batch& batch) { batch.rows.targets.select(1, 0).sub_(1).clamp_min_(0); })},
      {"a padded token is seen", task_point("sequence-classification"), reading(pad)},
      {"a sample sees its neighbour", task_point("token-classification"), layer("h.2", with_microbatch(join_samples))},
      {"the documents of a sample see each other", packed({.p = 2, .microbatches = 2}),
       layer("h.2", with_microbatch(join_documents))},
      {"positions go on from document to document", packed({.t = 2}),
       reading([](Batch& batch) { batch.rows.positions = batch.rows.places; })},
      {"a document predicts the first token of its neighbour", packed({.p = 2, .microbatches = 2}),
       reading([](Batch& batch) { count_others(batch, batch.rows.ids.roll(-1)); })},
      {"dropout masks begin anew with each document", with_dropout(packed({.microbatches = 2})),
       reading([](Batch& batch) { batch.rows.places = batch.rows.positions; })},
      {"the types of tokens are lost", task_point("sequence-classification"),
       reading([](Batch& batch) { batch.rows.types.zero_(); })},
      {"the second replica hides other tokens", on_replicas(task_point("masked-lm")), reading([](Batch& batch) {
         if (batch.first_sample > 0) shift_labels(batch);
       })},
      {"a frozen weight moves",
       {.p = 2, .microbatches = 2, .trained = "last blocks"},
       {.after_step = move_frozen},
       true},
  };
}

std::vector<Fault> planted_half_faults() {
  std::vector<Fault> faults = planted_faults();
  std::erase_if(faults, [](const Fault& fault) { return fault.fine; });
  for (auto& fault : faults) fault.point.dtype = "bf16";
  faults.push_back(
      {"one T rank does not scale its loss", {.t = 2, .dtype = "fp16"}, layer("head", unscaled_on_one_rank)});
  return faults;
}

}  // namespace shardline::parity
