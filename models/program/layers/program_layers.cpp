#include "models/program/layers/program_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "core/comm/fake_communicator.h"
#include "core/comm/local_communicator.h"
#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/model/layer.h"
#include "core/model/work_notes.h"
#include "core/numbers/philox.h"
#include "models/graph/autocast_mode.h"
#include "models/graph/autograd_layer.h"
#include "models/graph/pass_trace.h"
#include "models/graph/row_losses.h"
#include "models/program/layers/border_slots.h"
#include "models/program/layers/moved_head.h"
#include "models/program/layers/part_loss.h"
#include "models/program/layers/part_run.h"
#include "models/program/layers/program_buffers.h"
#include "models/program/layers/program_dropout.h"
#include "models/program/layers/program_positions.h"
#include "models/program/operators.h"
#include "models/program/program_inputs.h"
#include "tensor_parallel/ops/cross_entropy.h"
#include "tensor_parallel/ops/elementwise.h"

namespace shardline {
namespace {

constexpr uint64_t kProgramTraceSeed = 1234;
constexpr int64_t kTracedSamples = 2;  // unless the program takes another number
constexpr int kMostSites = 8;          // dropouts in a layer, see dropout_rows

using LossKind = ProgramLossTerm::Kind;
using Predicts = ProgramUse::Predicts;

class ProgramLayerRun : public Layer {
 public:
  ProgramLayerRun(std::shared_ptr<const Program> program, std::shared_ptr<const ProgramSplit> split, size_t number,
                  const LayerBuild& build)
      : program_(std::move(program)),
        split_(build.tp->size() > 1 ? std::move(split) : nullptr),
        number_(number),
        layer_(program_->layers[number]),
        is_first_(number == 0),
        is_last_(number + 1 == program_->layers.size()),
        index_(build.index),
        input_(border_slots(*program_, layer_.border)),
        params_(build.params),
        tp_{build.tp, false},
        borders_{build.tp, build.sequence_parallel} {
    if (!is_last_) output_ = border_slots(*program_, program_->layers[number + 1].border);
    if (!params_.empty() && c10::isReducedFloatingType(params_[0]->value.scalar_type())) {
      half_ = params_[0]->value.scalar_type();
      border_type_ = build.half.border.value_or(*half_);
    }
    make_leaves();
    for (const int index : layer_.part.nodes) {
      const GraphNode& node = program_->graph().nodes[index];
      if (node.name == kDropout || node.name == kAttention) sites_.push_back(site_of(*program_, node));
    }
  }

  Border forward(const Border& input, MicrobatchContext& context) override {
    const Microbatch& rows = *context.batch;
    if (rows.tokens() == 0) return empty(input, context);
    if (is_first_ && context.embedding_noise > 0)
      throw RunError("programs do not support noise on embeddings; leave neftune_noise_alpha out");
    const ProgramBatch batch(*program_, rows);
    if (context.mode == Mode::generate && !program_->has_target() && rows.position_count > batch.source.longest())
      throw RunError("a program does not cache earlier positions; generate without a cache");
    if (batch.source.is_padded() && !program_->argument("attention_mask"))
      throw RunError(cat(program_->archive.path,
                         ": has no argument attention_mask, so all samples of a microbatch must have ",
                         program_->fixed_source() > 0 ? cat(program_->fixed_source(), " tokens") : "the same length",
                         "; ", program_->archive.verb(), " it with one"));
    prepare(input);
    if (program_->buffers) buffers_ = program_->buffers->before(context.step, floating_);
    if (half_) make_leaves();  // the values have changed
    connect_gradients(leaves_, params_);
    const auto run = [&](const PartRun& part) {
      RandomCalls random{.dropout = [&](const at::Tensor& x, double probability, int site) {
        if (part.drops_from_rows(site))
          return bias_dropout_add(borders_, x.flatten(0, 1).contiguous(), rows.tokens(), nullptr, {},
                                  dropout_rows(borders_, context, index_, site, probability))
              .view(x.sizes());
        return dropped(tp_, x, dropout_rows(tp_, context, index_, site, probability), sites_[site], batch,
                       part.dropped_at(site));
      }};
      random.attention_dropout = [&](double probability, int site) {
        return attention_dropout(tp_, dropout_rows(tp_, context, index_, site, probability), sites_[site], batch,
                                 part.dropped_at(site));
      };
      std::optional<AutocastMode> autocast;
      if (half_) autocast.emplace(rows.ids.device().type(), half_);
      return part.run(inputs_of(part, input, batch), context.mode == Mode::train ? &random : nullptr, batch);
    };
    const bool is_unmasked = part_of_unmasked_ && !batch.is_padded() &&
                             std::max(batch.source.length(), batch.target.length()) <= program_->unmasked_length;
    const PartRun& part = is_unmasked ? *part_of_unmasked_ : *part_;
    if (!is_last_) return border_of(part, run(part), batch);
    const auto logits = [&] {
      std::vector<at::Tensor> made;
      if (!logits_)
        throw RunError(cat(program_->archive.path, ": returns no logits; ", program_->archive.verb(), " it with them"));
      const auto values = run(*logits_);
      for (size_t i = 0; i < values.size(); ++i)
        made.push_back(samples_first(*program_, program_->logits.outputs[i], exact(values[i].toTensor())));
      return made;
    };
    if (context.mode == Mode::generate) {
      const RowGrid& grid = program_->has_target() ? batch.target : batch.source;
      return {logits_->gathered(0, logits()[0].narrow(0, 0, grid.segments()).select(1, grid.longest() - 1))};
    }
    Border made;
    if (has_loss(rows, context)) {
      const WithoutHead& without = is_unmasked ? unmasked_without_head_ : without_head_;
      const PartRun& of_loss = without.run ? *without.run : part;
      LossSettings settings{.tp = tp_, .floating = floating_, .in_half = half_.has_value()};
      if (without.run) settings.weight = params_[without.head->weight];
      if (without.run && without.head->bias) settings.bias = params_[*without.head->bias];
      made = loss_of_part(of_loss, run(of_loss), batch, settings, context);
    }
    if (!context.predicts) return made;
    std::vector<at::Tensor> whole = logits();
    for (size_t i = 0; i < whole.size(); ++i) whole[i] = logits_->gathered(i, whole[i]);
    return {predictions(whole, batch)};
  }

 private:
  // The last layer with its head in the loss; the run is empty if that cannot be.
  struct WithoutHead {
    std::optional<MovedHead> head;  // `run` refers to it
    std::optional<PartRun> run;
  };

  // Predictions for samples without labels have no loss: a loss of the program's own may not take kNoLabel.
  bool has_loss(const Microbatch& rows, const MicrobatchContext& context) const {
    if (!rows.labels.defined() && !rows.targets.defined()) return false;
    return !context.predicts || on_host(weight_of(rows, program_->use), "labels of a microbatch").item<int64_t>() > 0;
  }

  // In half precision, the graph runs on fp32 values, as with autocast, and their gradients are fp32.
  void make_leaves() {
    leaves_.clear();
    for (size_t i = 0; i < params_.size(); ++i) {
      const at::Tensor value = params_[i]->value.view(sizes_of(layer_.parameters[i]));
      const at::Tensor leaf = half_ ? value.detach().to(at::kFloat) : value.variable_data();
      leaves_.push_back(leaf.requires_grad_(params_[i]->grad.defined()));
      leaf_of_[layer_.parameters[i]] = leaves_.back();
    }
  }

  at::Tensor exact(const at::Tensor& tensor) const { return half_ ? tensor.to(at::kFloat) : tensor; }

  Border empty(const Border& input, const MicrobatchContext& context) const {
    auto options = (params_.empty() ? input.at(0) : params_[0]->value).options();
    if (half_) options = options.dtype(is_last_ ? at::kFloat : *border_type_);
    if (is_last_ && context.predicts) return {at::zeros({0, columns_of_predictions()}, options)};
    if (is_last_ && context.mode != Mode::train) return {};
    if (is_last_) return {without_rows(input, {}, options)};
    Border border;
    for (const auto& slot : output_) border.push_back(without_rows(input, {0, slot.features}, options));
    return border;
  }

  // The device and number type of the layer come from its parameters or, if it has none, from its input.
  void prepare(const Border& input) {
    if (part_) return;
    const at::Tensor& like = params_.empty() ? input.at(0) : params_[0]->value;
    floating_ = half_ ? at::kFloat : like.scalar_type();
    const auto prepare_part = [&](std::optional<PartRun>& run, const Program& program, const GraphPart& part) {
      const TensorParallel rows{tp_.comm, borders_.sequence_parallel && !program.has_target()};
      run.emplace(program.graph(), part, split_.get(), rows, floating_, like.device());
    };
    // Ranks that divide the words compute the loss from their logits.
    const auto prepare_moved = [&](WithoutHead& without, const Program& program) {
      if (!is_last_ || tp_.size() > 1) return;
      without.head = moved_head(program, program.layers[number_].part);
      if (!without.head) return;
      without.run.emplace(without.head->graph, without.head->part, nullptr, tp_, floating_, like.device());
    };
    prepare_part(part_, *program_, layer_.part);
    prepare_moved(without_head_, *program_);
    if (const auto& unmasked = program_->unmasked) {
      prepare_part(part_of_unmasked_, *unmasked, unmasked->layers[number_].part);
      prepare_moved(unmasked_without_head_, *unmasked);
    }
    if (is_last_ && !program_->logits.outputs.empty()) prepare_part(logits_, *program_, program_->logits);
    for (const auto* part : {&layer_.part, &program_->logits})
      for (const int value : part->inputs)
        if (const at::Tensor constant = program_->constant(value); constant.defined())
          constants_[value] = in_own_type(constant).to(like.device());
  }

  at::Tensor in_own_type(const at::Tensor& tensor) const {
    return tensor.scalar_type() == at::kFloat ? tensor.to(floating_) : tensor;
  }

  std::vector<c10::IValue> inputs_of(const PartRun& run, const Border& border, const ProgramBatch& batch) const {
    std::vector<c10::IValue> inputs;
    Border gathered(border.size());
    for (const int value : run.whole().inputs) {
      const auto* source = program_->input_of(value);
      if (!source) {
        const auto slot = std::ranges::find_if(input_, [&](const BorderSlot& of) { return of.holds(value); });
        const size_t place = slot - input_.begin();
        if (run.takes_rows(inputs.size())) {
          inputs.push_back(exact(border.at(place)).unsqueeze(0));
          continue;
        }
        if (!gathered[place].defined())
          gathered[place] = gathered_for_all(borders_, border.at(place), batch.batch.tokens());
        const at::Tensor hidden = value_of_rows(value, gathered[place], batch);
        // Autograd does not allow calls to change a view of the border.
        const bool is_changed = program_->flow.changes.contains(program_->flow.storage[value]);
        inputs.push_back(exact(is_changed ? hidden.clone() : hidden));
      } else if (source->kind == GraphInput::Kind::parameter) {
        inputs.push_back(parameter(source->name));
      } else if (source->kind == GraphInput::Kind::user) {
        inputs.push_back(in_own_type(program_argument(*source, batch, floating_)));
      } else if (const auto buffer = buffers_.find(value); buffer != buffers_.end()) {
        const at::Tensor& constant = constants_.at(value);  // of the archive
        inputs.push_back(buffer->second.to(constant.device(), constant.scalar_type(), false, /*copy=*/true));
      } else {
        inputs.push_back(constants_.at(value));
      }
    }
    return inputs;
  }

  // Null if this rank has the whole parameter.
  const DividedDimension* divided(const std::string& name) const {
    return split_ && split_->parameters.contains(name) ? &split_->parameters.at(name) : nullptr;
  }

  // A parameter's sizes in the program, on this rank. The parameter itself may have more dimensions.
  std::vector<int64_t> sizes_of(const std::string& name) const {
    auto sizes = program_->archive.weights->tensors().at(name).shape;
    const auto* part = divided(name);
    if (part && part->sections.empty()) sizes[part->dimension] = part->own_size(tp_.size(), tp_.rank());
    return sizes;
  }

  at::Tensor parameter(const std::string& name) const {
    const at::Tensor& leaf = leaf_of_.at(name);
    const auto* part = divided(name);
    return part && !part->sections.empty() ? leaf.index_select(part->dimension, own_places(tp_, *part, leaf)) : leaf;
  }

  Border border_of(const PartRun& run, const std::vector<c10::IValue>& made, const ProgramBatch& batch) const {
    const auto& values = layer_.part.outputs;
    const auto place = [&](int value) { return int(std::ranges::find(values, value) - values.begin()); };
    const auto tensor = [&](int value) { return made[place(value)].toTensor(); };
    Border border;
    for (const auto& slot : output_) {
      at::Tensor rows;
      const bool are_rows = slot.source >= 0 && run.makes_rows(place(slot.source));
      if (are_rows) {
        rows = tensor(slot.source).flatten(0, 1);
      } else {
        if (slot.source >= 0) rows = rows_of_value(slot.source, tensor(slot.source), batch, rows);
        if (slot.target >= 0) rows = rows_of_value(slot.target, tensor(slot.target), batch, rows);
      }
      rows = rows.to(border_type_.value_or(rows.scalar_type()));
      border.push_back(are_rows ? rows : sliced_from_all(borders_, rows));
    }
    return border;
  }

  int64_t columns_of_predictions() const {
    switch (program_->use.predicts) {
      case Predicts::masked_row:
        return 2 * kBestWords;
      case Predicts::span:
        return 2;
      default:
        return program_->labels;
    }
  }

  // See Layer.
  at::Tensor predictions(const std::vector<at::Tensor>& logits, const ProgramBatch& batch) const {
    switch (program_->use.predicts) {
      case Predicts::segment:
        return logits[0].narrow(0, 0, batch.batch.segments()).reshape({batch.batch.segments(), -1});
      case Predicts::span:
        return batch.source.gathered(at::stack(logits, -1));
      case Predicts::masked_row: {
        const at::Tensor rows = batch.source.gathered(logits[0]);
        return best_words(rows.index_select(0, (batch.batch.labels != kNoLabel).nonzero().squeeze(1)));
      }
      default:
        return batch.grid_of(program_->logits.outputs[0]).gathered(logits[0]);
    }
  }

  static at::Tensor best_words(const at::Tensor& logits) {
    const int64_t count = std::min(kBestWords, logits.size(1));
    const auto [scores, words] = at::log_softmax(logits, 1).topk(count, 1);
    const auto none = at::zeros({logits.size(0), kBestWords - count}, logits.options());
    return at::cat({words.to(logits.scalar_type()), none, scores, none - std::numeric_limits<double>::infinity()}, 1);
  }

  const std::shared_ptr<const Program> program_;
  const std::shared_ptr<const ProgramSplit> split_;  // null: this rank has everything
  const size_t number_;
  const ProgramLayer& layer_;
  const bool is_first_, is_last_;
  const int64_t index_;
  std::vector<BorderSlot> input_, output_;
  std::vector<Parameter*> params_;
  TensorParallel tp_, borders_;                // inside the layer, and at its borders
  std::vector<at::Tensor> leaves_;             // the parameters' memory, in order
  std::map<std::string, at::Tensor> leaf_of_;  // by name in the archive
  std::vector<DropoutSite> sites_;             // in the order of the random calls
  // In half precision, the type of products and that of borders; unset: everything has the type of the parameters.
  std::optional<at::ScalarType> half_, border_type_;
  at::ScalarType floating_ = at::kFloat;
  std::optional<PartRun> part_, part_of_unmasked_, logits_;
  WithoutHead without_head_, unmasked_without_head_;
  std::map<int, at::Tensor> constants_;  // by value of the graph
  BufferStates::Values buffers_;         // those that the program changes, before this step
};

class ProgramSpecMaker {
 public:
  ProgramSpecMaker(const std::shared_ptr<const Program>& program, int64_t traced_length,
                   std::shared_ptr<const ProgramSplit> split)
      : program_(program),
        traced_samples_(program->fixed_samples > 0 ? program->fixed_samples : kTracedSamples),
        traced_length_(traced_length),
        split_(std::move(split)) {}

  ModelSpec make() {
    ModelSpec spec{.family = program_->archive.is_traced ? kTracedFamily : kExportedFamily,
                   .vocab_size = program_->vocab_size,
                   .row_labels = program_->use.predicts == Predicts::row ? program_->labels : 0,
                   .predicts_next = program_->use.predicts == Predicts::next_row,
                   .loss_of_samples = program_->loss.has(LossKind::whole),
                   .max_positions = most_positions(*program_)};
    traced_length_ = std::min(traced_length_, spec.max_positions);
    spec.most_samples = program_->fixed_samples;
    const int64_t target = spec.most_targets = program_->fixed_target();
    if (program_->columns.empty() && program_->fixed_source() > 0) traced_length_ = program_->fixed_source() + target;
    if (!program_->columns.empty() && target > 0) traced_length_ = program_->source_rows() + target;
    for (size_t i = 0; i < program_->layers.size(); ++i) {
      check(program_->layers[i]);
      spec.layers.push_back(layer_spec(i));
    }
    for (const auto& [name, column] : zero_columns(*program_, 1)) spec.column_bytes += column.nbytes();
    spec.buffers = program_buffers(program_->archive);
    for (const auto& [name, entry] : program_->archive.weights->tensors())
      if (!owner_.contains(name)) spec.buffers.push_back({name, entry.shape, entry.dtype, names_of(name)});
    for (size_t i = 0; i < spec.layers.size(); ++i) add_costs(spec, i);
    return spec;
  }

 private:
  // wanted: what to export instead.
  [[noreturn]] void refuse(const std::string& what, const std::string& wanted) const {
    const Pt2Archive& archive = program_->archive;
    throw ConfigError(cat(archive.place(), ": ", what, "; ", archive.verb(), " ", wanted));
  }

  void check(const ProgramLayer& layer) const {
    for (const int value : layer.part.inputs) {
      const auto* input = program_->input_of(value);
      if (!input || input->kind != GraphInput::Kind::user) continue;
      if (const std::string& given = program_->given_to(*input); !is_given(given, program_->use))
        refuse(cat("nothing provides its argument ", input->name),
               cat("it with ", given_names(program_->use),
                   " only, or set in model.inputs which of them or which column of tensors it receives"));
    }
    int sites = 0;
    for (const int index : layer.part.nodes) {
      const GraphNode& node = program_->graph().nodes[index];
      if (node.name != kDropout && node.name != kAttention) continue;
      if (++sites > kMostSites && drops(node))
        refuse(cat("layer ", layer.name, " has more than ", kMostSites, " dropouts and attentions"),
               "a model whose blocks have fewer, or with dropout 0");
      if (drops(node) && site_of(*program_, node).kind == DropoutSite::Kind::unknown)
        refuse(cat("layer ", layer.name, " has dropout on something other than [batch, length, features], [batch, ",
                   "features] and [batch, heads, length, length]"),
               "a model in which this dropout is 0");
    }
  }

  static bool drops(const GraphNode& node) {
    const auto constant = [&](const char* name) { return node.arguments[place_of_argument(node, name)].constant; };
    const auto is_above_zero = [&](const char* name) {  // a computed number may be
      return !constant(name).isScalar() || constant(name).toScalar().toDouble() > 0;
    };
    return node.name == kAttention ? is_above_zero("dropout_p") : is_above_zero("train") && is_above_zero("p");
  }

  LayerSpec layer_spec(size_t number) {
    const ProgramLayer& layer = program_->layers[number];
    LayerSpec spec{.name = layer.name, .is_block = layer.is_block};
    for (const auto& name : layer.parameters) spec.params.push_back(param_spec(name, spec));
    if (number + 1 < program_->layers.size())
      for (const auto& slot : border_slots(*program_, program_->layers[number + 1].border)) {
        const GraphValue& passed = program_->graph().values[std::max(slot.source, slot.target)];
        spec.output.push_back({passed.name, {BorderTensor::kRows, slot.features}});
      }
    spec.build = [program = program_, split = split_, number](const LayerBuild& build) {
      return std::make_unique<ProgramLayerRun>(program, split, number, build);
    };
    return spec;
  }

  ParamSpec param_spec(const std::string& name, const LayerSpec& layer) {
    const auto& entry = program_->archive.weights->tensors().at(name);
    const auto [owner, is_new] = owner_.try_emplace(name);
    // A further use has one of the parameter's other names, if there is one.
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
    const auto* divided = split_ && split_->parameters.contains(name) ? &split_->parameters.at(name) : nullptr;
    spec.partial_over_t = divided && !divided->sections.empty();
    if (divided && divided->sections.empty()) std::tie(spec.shape, spec.split_dim) = divided->logical(entry.shape);
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
    const int64_t tokens = traced_samples_ * traced_length_;
    const std::string calls = calls_of(layer, input, program_->layers[number].part);
    auto traced = traces_.find(calls);
    try {
      if (traced == traces_.end()) traced = traces_.emplace(calls, trace(layer, input, number)).first;
    } catch (const RunError& error) {
      throw ConfigError(cat(program_->archive.place(), ": layer ", layer.name, " fails on ", traced_samples_,
                            " samples of ", traced_length_, " tokens (", error.what(), ")"));
    }
    const auto& [pass, collectives] = traced->second;
    layer.code = code_of(pass);
    for (const auto& collective : collectives) layer.code += cat(" ", collective.bytes, " over T");
    int64_t features = 0;
    for (const auto& tensor : input) features += tensor.shape[1];
    state_traced_costs(layer, pass, tokens, features, 0);
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

  // The costs of the first rank, which has at least as much as the others: of its pass, and its collectives.
  using Traced = std::pair<PassTrace, std::vector<Collective>>;

  Traced trace(const LayerSpec& layer, const std::vector<BorderTensor>& input, size_t number) const {
    const RandomStream stream{.seed = kProgramTraceSeed};
    const int64_t tokens = traced_samples_ * traced_length_;
    auto ids = at::empty({traced_samples_, traced_length_}, at::kLong);
    for (int64_t i = 0; i < tokens; ++i) ids.data_ptr<int64_t>()[i] = random_word(stream, i) % program_->vocab_size;
    const int64_t source = program_->fixed_source(), target = source > 0 ? traced_length_ - source : traced_length_ / 2;
    const Microbatch batch = sample_batch(*program_, ids, program_->has_target() ? target : 0);
    std::vector<Parameter> parameters;
    const CommunicatorPtr world = split_ ? make_fake_world(0, split_->ranks) : make_local_world();
    const bool divides_rows = split_ && split_->divides_rows;
    LayerBuild build{.spec = &layer, .tp = world.get(), .sequence_parallel = divides_rows, .index = int64_t(number)};
    for (size_t i = 0; i < layer.params.size(); ++i)
      parameters.push_back({.name = layer.full_name(layer.params[i]),
                            .spec = &layer.params[i],
                            .value = first_part(layer.params[i], program_->layers[number].parameters[i])});
    std::vector<at::Tensor> known = {batch.ids, batch.positions, batch.samples};
    for (const auto& labels : {batch.labels, batch.targets})
      if (labels.defined()) known.push_back(labels);
    for (const auto& [name, column] : batch.columns) known.push_back(column);
    for (auto& parameter : parameters) {
      parameter.grad = at::zeros_like(parameter.value, at::MemoryFormat::Contiguous);
      known.insert(known.end(), {parameter.value, parameter.grad});
      build.params.push_back(&parameter);
    }
    for (const auto& [name, constant] : program_->archive.constants) known.push_back(constant);
    Border border;
    for (const auto& tensor : input) {
      auto x = at::empty(bind_shape(tensor, border_rows(tokens, world->size(), divides_rows)), at::kDouble);
      random_normals(stream, 0, x.numel(), x.data_ptr<double>());
      border.push_back(x.to(at::kFloat).requires_grad_(true));
      known.push_back(border.back());
    }
    const auto run = layer.build(build);
    WorkNotes notes({.sequences = traced_samples_, .length = traced_length_, .tensor = world->size()});
    const PassTrace pass = trace_pass(known, [&] {
      MicrobatchContext context{.batch = &batch, .seed = kProgramTraceSeed, .step = 1};
      const Border made = run->forward(border, context);
      const at::Tensor result = made.size() == 1 ? made[0] : at::cat(made, 1);
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
  const int64_t traced_samples_;
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
