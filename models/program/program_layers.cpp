#include "models/program/program_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "core/comm/fake_communicator.h"
#include "core/comm/local_communicator.h"
#include "core/error.h"
#include "core/model/layer.h"
#include "core/model/work_notes.h"
#include "core/numbers/philox.h"
#include "models/graph/autograd_layer.h"
#include "models/graph/pass_trace.h"
#include "models/program/operators.h"
#include "models/program/program_inputs.h"
#include "models/program/program_positions.h"
#include "tensor_parallel/ops/class_loss.h"
#include "tensor_parallel/ops/elementwise.h"
#include "tensor_parallel/ops/rank_sums.h"

namespace shardline {
namespace {

constexpr uint64_t kProgramTraceSeed = 1234;
constexpr int64_t kTracedSamples = 2;
constexpr int kMostSites = 8;  // of dropout in a layer, see dropout_rows

class ProgramLayerRun : public Layer {
 public:
  ProgramLayerRun(std::shared_ptr<const Program> program, std::shared_ptr<const ProgramSplit> split, size_t number,
                  const LayerBuild& build)
      : program_(std::move(program)),
        split_(build.tp->size() > 1 ? std::move(split) : nullptr),
        layer_(program_->layers[number]),
        is_first_(number == 0),
        is_last_(number + 1 == program_->layers.size()),
        index_(build.index),
        features_(is_last_ ? 0 : build.spec->output[0].shape[1]),
        params_(build.params),
        tp_{build.tp, false} {
    SL_ASSERT(!build.half.border, "programs run in the type of their parameters");
    if (build.sequence_parallel)
      throw ConfigError(cat("layer ", layer_.name, " of the program is whole on every tensor-parallel rank and needs ",
                            "all rows; set smp_options.optimize to \"speed\", or tensor_parallel_degree to 1"));
    for (size_t i = 0; i < params_.size(); ++i) {
      leaves_.push_back(params_[i]->value.variable_data().requires_grad_(params_[i]->grad.defined()));
      leaf_of_[layer_.parameters[i]] = leaves_.back();
    }
  }

  Border forward(const Border& input, MicrobatchContext& context) override {
    const Microbatch& batch = *context.batch;
    if (batch.tokens() == 0) return empty(input, context.mode);
    if (is_first_ && context.embedding_noise > 0)
      throw RunError("an exported program takes no noise on its embeddings; leave neftune_noise_alpha out");
    const RowGrid grid(batch);
    if (context.mode == Mode::generate && batch.position_count > grid.length())
      throw RunError("an exported program keeps nothing for earlier positions; generate without a cache");
    if (grid.is_padded() && !program_->argument("attention_mask"))
      throw RunError(cat(program_->archive.path,
                         ": has no argument attention_mask, so all samples of a microbatch must ",
                         "have one length; export it with one"));
    prepare(input);
    connect_gradients(leaves_, params_);
    const auto run = [&](const PartRun& part) {
      RandomCalls random{.dropout = [&](const at::Tensor& x, double probability, int site) {
        return dropped(x, dropout_rows(tp_, context, index_, site, probability), part.dropped_at(site), batch, grid);
      }};
      return part.calls.run(inputs_of(*part.whole, input, batch, grid),
                            context.mode == Mode::train ? &random : nullptr);
    };
    if (!is_last_) return {grid.gathered(run(*part_)[0].toTensor())};
    if (context.mode == Mode::generate) {
      const at::Tensor logits = run(*logits_)[0].toTensor().select(1, grid.length() - 1);
      const auto classes = logits_->output(0);
      return {classes ? gathered_dimension(tp_, logits, 1, classes->size(), places_of(*classes, logits)) : logits};
    }
    if (!batch.labels.defined()) return {};
    const auto of_loss = run(*part_);
    return loss(of_loss[0].toTensor(), of_loss[1].toTensor(), context);
  }

 private:
  Border empty(const Border& input, Mode mode) const {
    if (is_last_ && mode != Mode::train) return {};
    const auto options = (params_.empty() ? input.at(0) : params_[0]->value).options();
    return {without_rows(input, is_last_ ? std::vector<int64_t>{} : std::vector<int64_t>{0, features_}, options)};
  }

  // What this rank runs of a part of the program.
  struct PartRun {
    const GraphPart* whole = nullptr;
    std::unique_ptr<const DividedPart> divided;  // null: everything; `calls` refers to it
    Interpreter calls;

    const DividedDimension* dropped_at(int site) const {
      const bool is_divided = divided && divided->dropped.contains(site);
      return is_divided ? &divided->dropped.at(site) : nullptr;
    }
    std::optional<DividedDimension> output(int number) const {
      return divided ? divided->outputs[number] : std::nullopt;
    }
  };

  PartRun run_of(const GraphPart& part, const at::Tensor& like) const {
    if (!split_) return {&part, nullptr, Interpreter(program_->graph(), part, like.scalar_type(), like.device())};
    auto divided = std::make_unique<const DividedPart>(split_->divide(part, tp_.rank()));
    const OwnCalls calls = {{kEnterRanks, [tp = tp_](const at::Tensor& x) { return enter_ranks(tp, x); }},
                            {kAddOverRanks, [tp = tp_](const at::Tensor& x) { return add_over_ranks(tp, x); }}};
    Interpreter interpreter(divided->graph, divided->part, like.scalar_type(), like.device(), calls);
    return {&part, std::move(divided), std::move(interpreter)};
  }

  // The device and the type of the layer's numbers are those of its parameters or, without any, of its input.
  void prepare(const Border& input) {
    if (part_) return;
    const at::Tensor& like = params_.empty() ? input.at(0) : params_[0]->value;
    part_.emplace(run_of(layer_.part, like));
    if (is_last_ && !program_->logits.outputs.empty()) logits_.emplace(run_of(program_->logits, like));
    for (const auto* part : {&layer_.part, &program_->logits})
      for (const int value : part->inputs)
        if (const at::Tensor constant = program_->constant(value); constant.defined())
          constants_[value] = constant.to(
              like.device(), constant.scalar_type() == at::kFloat ? like.scalar_type() : constant.scalar_type());
  }

  std::vector<c10::IValue> inputs_of(const GraphPart& part, const Border& border, const Microbatch& batch,
                                     const RowGrid& grid) const {
    std::vector<c10::IValue> inputs;
    for (const int value : part.inputs) {
      const auto* source = program_->input_of(value);
      if (!source) {
        const size_t place = std::ranges::find(layer_.border, value) - layer_.border.begin();
        inputs.push_back(grid.spread(border.at(place)));
      } else if (source->kind == GraphInput::Kind::parameter) {
        inputs.push_back(parameter(source->name));
      } else if (source->kind == GraphInput::Kind::user) {
        inputs.push_back(program_argument(source->name, batch, grid));
      } else {
        inputs.push_back(constants_.at(value));
      }
    }
    return inputs;
  }

  // As the program has it: a part may have more dimensions.
  at::Tensor parameter(const std::string& name) const {
    const at::Tensor& leaf = leaf_of_.at(name);
    if (!split_ || !split_->parameters.contains(name)) return leaf;
    const DividedDimension& part = split_->parameters.at(name);
    auto sizes = program_->archive.weights->tensors().at(name).shape;
    sizes[part.dimension] = part.size_of(range_of(part));
    return leaf.view(sizes);
  }

  Range range_of(const DividedDimension& of) const { return split_range(of.count, tp_.size(), tp_.rank()); }
  at::Tensor places_of(const DividedDimension& of, const at::Tensor& like) const {
    return at::tensor(of.places(range_of(of)), at::kLong).to(like.device());
  }

  // x: [segments, length, features] or [segments, heads, length, length]; part: which features or heads, if not all
  at::Tensor dropped(const at::Tensor& x, const DropoutRows& rows, const DividedDimension* part,
                     const Microbatch& batch, const RowGrid& grid) const {
    if (x.dim() == 4) return dropped_pairs(x, rows, batch, part ? places_of(*part, x) : at::Tensor());
    const DropoutRows of_grid = grid_rows(rows, grid);
    if (part) return dropped_features(x, of_grid, places_of(*part, x), part->size());
    return bias_dropout_add(tp_, x.reshape({of_grid.tokens, -1}), of_grid.tokens, nullptr, {}, of_grid).view(x.sizes());
  }

  Border loss(const at::Tensor& input, const at::Tensor& target, MicrobatchContext& context) const {
    const ProgramLoss& loss = program_->loss;
    if (loss.kind == ProgramLoss::Kind::squared_error)
      return summed_loss(at::mse_loss(input, target, at::Reduction::Sum),
                         at::scalar_tensor(target.numel(), input.options().requires_grad(false)), context);
    const auto classes = part_->output(0);
    const auto sum =
        classes ? split_cross_entropy_sum(tp_, input, target,
                                          {classes->count, range_of(*classes), loss.ignored, context.label_smoothing})
                : at::cross_entropy_loss(input, target, {}, at::Reduction::Sum, loss.ignored, context.label_smoothing);
    return summed_loss(sum, (target != loss.ignored).sum(), context);
  }

  const std::shared_ptr<const Program> program_;
  const std::shared_ptr<const ProgramSplit> split_;  // null: this rank has everything
  const ProgramLayer& layer_;
  const bool is_first_, is_last_;
  const int64_t index_, features_;
  std::vector<Parameter*> params_;
  TensorParallel tp_;
  std::vector<at::Tensor> leaves_;             // views of the parameters, in their order
  std::map<std::string, at::Tensor> leaf_of_;  // by name in the archive
  std::optional<PartRun> part_, logits_;
  std::map<int, at::Tensor> constants_;  // by value of the graph
};

class ProgramSpecMaker {
 public:
  ProgramSpecMaker(const std::shared_ptr<const Program>& program, int64_t traced_length,
                   std::shared_ptr<const ProgramSplit> split)
      : program_(program), traced_length_(traced_length), split_(std::move(split)) {}

  ModelSpec make() {
    ModelSpec spec{
        .family = kExportedFamily, .vocab_size = program_->vocab_size, .max_positions = most_positions(*program_)};
    traced_length_ = std::min(traced_length_, spec.max_positions);
    for (size_t i = 0; i < program_->layers.size(); ++i) {
      check(program_->layers[i]);
      spec.layers.push_back(layer_spec(i));
    }
    for (const auto& [name, entry] : program_->archive.weights->tensors())
      if (!owner_.contains(name)) spec.layers[0].ignored_tensors.push_back(name);
    for (size_t i = 0; i < spec.layers.size(); ++i) add_costs(spec, i);
    return spec;
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& advice) const {
    throw ConfigError(cat("/model/path: ", program_->archive.path, ": ", what, "; ", advice));
  }

  void check(const ProgramLayer& layer) const {
    for (const int value : layer.part.inputs) {
      const auto* source = program_->input_of(value);
      if (source && source->kind == GraphInput::Kind::user && !is_program_argument(source->name))
        refuse(cat("nothing gives its argument ", source->name),
               "export it with input_ids, labels, attention_mask, position_ids and token_type_ids only");
    }
    int sites = 0;
    for (const int index : layer.part.nodes) {
      const GraphNode& node = program_->graph().nodes[index];
      if (node.name != kDropout && node.name != kAttention) continue;
      if (++sites > kMostSites)
        refuse(cat("layer ", layer.name, " has more than ", kMostSites, " dropouts and attentions"),
               "export a model whose blocks have fewer");
      if (node.name == kDropout && !is_dropped_by_row(node))
        refuse(cat("layer ", layer.name, " has dropout on something else than [batch, length, features] and [batch, ",
                   "heads, length, length]"),
               "set this dropout to 0 and export the model again");
    }
  }

  bool is_dropped_by_row(const GraphNode& node) const {
    const auto constant = [&](const char* name) { return node.arguments[place_of_argument(node, name)].constant; };
    if (!constant("train").toBool() || constant("p").toDouble() == 0) return true;
    const auto& ids = program_->graph().values[program_->argument(kIdsArgument)->value].sizes;
    const auto& sizes = program_->graph().values[node.arguments[0].value].sizes;
    if (sizes.size() == 3) return sizes[0] == ids[0] && sizes[1] == ids[1];
    return sizes.size() == 4 && sizes[0] == ids[0] && sizes[2] == ids[1] && sizes[3] == ids[1];
  }

  LayerSpec layer_spec(size_t number) {
    const ProgramLayer& layer = program_->layers[number];
    LayerSpec spec{.name = layer.name, .is_block = layer.is_block};
    for (const auto& name : layer.parameters) spec.params.push_back(param_spec(name, spec));
    if (number + 1 < program_->layers.size())
      for (const int value : program_->layers[number + 1].border) {
        const GraphValue& passed = program_->graph().values[value];
        spec.output.push_back({passed.name, {BorderTensor::kRows, passed.sizes[2].number}});
      }
    spec.build = [program = program_, split = split_, number](const LayerBuild& build) {
      return std::make_unique<ProgramLayerRun>(program, split, number, build);
    };
    return spec;
  }

  ParamSpec param_spec(const std::string& name, const LayerSpec& layer) {
    const auto& entry = program_->archive.weights->tensors().at(name);
    const auto [owner, is_new] = owner_.try_emplace(name);
    // A further use goes by another of its names, if there is one.
    auto& others = other_names_.try_emplace(name, names_of(name)).first->second;
    std::string used = name;
    if (!is_new && !others.empty()) {
      used = others.front();
      others.erase(others.begin());
    }
    ParamSpec spec{.name = used, .shape = entry.shape, .trainable = program_->archive.trainable.at(name)};
    if (layer.is_block && used.starts_with(layer.name + ".")) spec.name = used.substr(layer.name.size() + 1);
    spec.decays = entry.shape.size() > 1;
    spec.sources = {{.tensor = used, .shape = entry.shape}};
    if (split_ && split_->parameters.contains(name))
      std::tie(spec.shape, spec.split_dim) = split_->parameters.at(name).logical(entry.shape);
    if (is_new) owner->second = layer.full_name(spec);
    if (!is_new) spec.tied_to = owner->second;
    return spec;
  }

  std::vector<std::string> names_of(const std::string& name) const {
    const auto found = program_->archive.names.find(name);
    return found == program_->archive.names.end() ? std::vector<std::string>() : found->second;
  }

  // Layers with the same calls, parameters and borders have the same trace.
  std::string calls_of(const LayerSpec& layer, const std::vector<BorderTensor>& input, const GraphPart& part) const {
    std::string text = layer_kind(layer);
    for (const auto& tensor : input) text += cat(" ", tensor.shape.back());
    for (const int index : part.nodes) text += cat(" ", program_->graph().nodes[index].text());
    return text;
  }

  void add_costs(ModelSpec& spec, size_t number) {
    LayerSpec& layer = spec.layers[number];
    const auto input = number > 0 ? spec.layers[number - 1].output : std::vector<BorderTensor>();
    const int64_t tokens = kTracedSamples * traced_length_;
    const std::string calls = calls_of(layer, input, program_->layers[number].part);
    auto traced = traces_.find(calls);
    if (traced == traces_.end()) traced = traces_.emplace(calls, trace(layer, input, number)).first;
    const auto& [pass, collectives] = traced->second;
    layer.code = code_of(pass);
    for (const auto& collective : collectives) layer.code += cat(" ", collective.bytes, " over T");
    state_traced_costs(layer, pass, tokens, number > 0 ? input[0].shape[1] : 0, 0);
    if (collectives.empty()) return;
    layer.work = [work = layer.work, collectives, tokens](const WorkShape& shape) {
      LayerWork all = work(shape);
      for (Collective collective : collectives) {
        collective.bytes *= double(shape.tokens()) / tokens * shape.value_bytes / 4;
        all.collectives.push_back(collective);
      }
      return all;
    };
  }

  // The first rank's costs, which has at least as much as others: of its pass, and the collectives.
  using Traced = std::pair<PassTrace, std::vector<Collective>>;

  Traced trace(const LayerSpec& layer, const std::vector<BorderTensor>& input, size_t number) const {
    const RandomStream stream{.seed = kProgramTraceSeed};
    const int64_t tokens = kTracedSamples * traced_length_;
    auto ids = at::empty({kTracedSamples, traced_length_}, at::kLong);
    for (int64_t i = 0; i < tokens; ++i) ids.data_ptr<int64_t>()[i] = random_word(stream, i) % program_->vocab_size;
    const Microbatch batch = causal_microbatch(ids, ids, at::arange(kTracedSamples));
    std::vector<Parameter> parameters;
    const CommunicatorPtr world = split_ ? make_fake_world(0, split_->ranks) : make_local_world();
    LayerBuild build{.spec = &layer, .tp = world.get(), .index = int64_t(number)};
    for (size_t i = 0; i < layer.params.size(); ++i)
      parameters.push_back({.name = layer.full_name(layer.params[i]),
                            .spec = &layer.params[i],
                            .value = first_part(layer.params[i], program_->layers[number].parameters[i])});
    std::vector<at::Tensor> known = {batch.ids, batch.labels, batch.positions, batch.samples};
    for (auto& parameter : parameters) {
      parameter.grad = at::zeros_like(parameter.value, at::MemoryFormat::Contiguous);
      known.insert(known.end(), {parameter.value, parameter.grad});
      build.params.push_back(&parameter);
    }
    for (const auto& [name, constant] : program_->archive.constants) known.push_back(constant);
    Border border;
    for (const auto& tensor : input) {
      auto x = at::empty(bind_shape(tensor, tokens), at::kDouble);
      random_normals(stream, 0, x.numel(), x.data_ptr<double>());
      border.push_back(x.to(at::kFloat).requires_grad_(true));
      known.push_back(border.back());
    }
    const auto run = layer.build(build);
    WorkNotes notes({.sequences = kTracedSamples, .length = traced_length_, .tensor = world->size()});
    const PassTrace pass = trace_pass(known, [&] {
      MicrobatchContext context{.batch = &batch, .seed = kProgramTraceSeed, .step = 1};
      const at::Tensor result = run->forward(border, context)[0];
      notes.phase = Phase::backward_input;
      return result;
    });
    return {pass, notes.work.collectives};
  }

  at::Tensor first_part(const ParamSpec& param, const std::string& name) const {
    const at::Tensor whole = program_->archive.weights->tensor(name);
    if (param.split_dim < 0) return whole;
    const Range first = param.split(0, split_->ranks);
    return whole.reshape(param.shape).narrow(param.split_dim, first.begin, first.length).contiguous();
  }

  const std::shared_ptr<const Program> program_;
  int64_t traced_length_;
  const std::shared_ptr<const ProgramSplit> split_;
  std::map<std::string, std::string> owner_;  // by name in the archive: the full name of its first use
  std::map<std::string, std::vector<std::string>> other_names_;
  std::map<std::string, Traced> traces_;
};

}  // namespace

ModelSpec spec_of_program(const std::shared_ptr<const Program>& program, int64_t traced_length,
                          std::shared_ptr<const ProgramSplit> split) {
  return ProgramSpecMaker(program, traced_length, std::move(split)).make();
}

}  // namespace shardline
