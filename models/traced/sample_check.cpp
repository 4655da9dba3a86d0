#include "models/traced/sample_check.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/comm/local_communicator.h"
#include "core/error.h"
#include "core/model/layer.h"
#include "core/numbers/philox.h"
#include "models/program/interpreter.h"
#include "models/program/layers/border_slots.h"
#include "models/program/operators.h"
#include "models/program/program_inputs.h"

namespace shardline {
namespace {

using Predicts = ProgramUse::Predicts;

constexpr uint64_t kSampleSeed = 4321;
// Relative to the largest number, in float64: reordering sums makes far smaller differences.
constexpr double kSame = 1e-9;
constexpr int64_t kMostTargets = 4;  // after sources that are long

bool are_same(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  if (!a.is_floating_point()) return at::equal(a, b);
  if (a.numel() == 0) return true;
  const double largest = b.nan_to_num(0, 0, 0).abs().max().item<double>();
  return at::allclose(a, b, 0, kSame * std::max(largest, 1.0), /*equal_nan=*/true);
}

// Concatenates samples.
Microbatch joined_samples(const std::vector<Microbatch>& samples) {
  const auto all = [&](at::Tensor Microbatch::*part) {
    std::vector<at::Tensor> parts;
    for (const auto& sample : samples)
      if ((sample.*part).defined()) parts.push_back(sample.*part);
    return parts.empty() ? at::Tensor() : at::cat(parts);
  };
  Microbatch batch{.ids = all(&Microbatch::ids),
                   .labels = all(&Microbatch::labels),
                   .positions = all(&Microbatch::positions),
                   .samples = all(&Microbatch::samples),
                   .places = all(&Microbatch::places),
                   .segment_samples = all(&Microbatch::segment_samples),
                   .segment_places = all(&Microbatch::segment_places),
                   .targets = all(&Microbatch::targets)};
  for (const auto& [name, column] : samples.front().columns) {
    std::vector<at::Tensor> parts;
    for (const auto& sample : samples) parts.push_back(sample.columns.at(name));
    batch.columns[name] = at::cat(parts);
  }
  int64_t begin = 0;
  for (const auto& sample : samples) {
    for (const int64_t target : sample.target_begins) batch.target_begins.push_back(begin + target);
    begin = batch.ends.emplace_back(begin + sample.tokens());
    batch.position_count = std::max(batch.position_count, sample.position_count);
  }
  return batch;
}

Border joined_borders(const std::vector<Border>& samples) {
  Border together;
  for (size_t tensor = 0; tensor < samples.front().size(); ++tensor) {
    std::vector<at::Tensor> parts;
    for (const auto& sample : samples) parts.push_back(sample[tensor]);
    together.push_back(at::cat(parts));
  }
  return together;
}

at::Tensor random_numbers(const RandomStream& stream, const std::vector<int64_t>& sizes) {
  auto numbers = at::empty(sizes, at::kDouble);
  random_normals(stream, 0, numbers.numel(), numbers.data_ptr<double>());
  return numbers;
}

class SampleCheck {
 public:
  SampleCheck(const std::shared_ptr<const Program>& program, const ModelSpec& spec, const std::vector<int64_t>& lengths)
      : program_(*program),
        spec_(spec),
        has_one_length_(std::ranges::count(lengths, lengths[0]) == std::ssize(lengths)) {
    for (const int64_t length : lengths) alone_.push_back(sample(length, alone_.size()));
    // Samples that a batch of a fixed size repeats count in a loss that is computed as a whole.
    const bool repeats = program_.fixed_samples > 1 && program_.loss.has(ProgramLossTerm::Kind::whole);
    if (repeats || (!has_one_length_ && counts_padding()))
      for (auto& sample : alone_) sample.labels = sample.targets = at::Tensor();
    together_ = joined_samples(alone_);
  }

  void check() {
    const at::NoGradGuard no_grad;
    std::set<std::string> checked;
    for (size_t layer = 0; layer < spec_.layers.size(); ++layer)
      if (checked.insert(calls_of(layer)).second) check(layer);
  }

 private:
  void check(size_t layer) {
    const auto run = made(layer);
    std::vector<Border> inputs;
    for (const auto& sample : alone_) inputs.push_back(hidden_states(layer, sample));
    const Border input = layer == 0 ? Border() : joined_borders(inputs);
    std::vector<Border> alone = inputs;
    Border together = input;
    const double all = pass(*run, together_, together);
    double sum = 0;
    for (size_t i = 0; i < alone.size(); ++i) sum += pass(*run, alone_[i], alone[i]);
    const bool has_other_loss = std::abs(all - sum) > kSame * std::max(std::abs(sum), 1.0);
    if (!is_same(together, alone)) refuse(layer, input, inputs);
    if (has_other_loss && !together.empty() && has_one_length_) refuse_loss();
    if (has_other_loss) refuse(layer, input, inputs);
  }

  // Describes what the layer computes, except for the values of parameters and hidden states.
  std::string calls_of(size_t number) const {
    const ProgramLayer& layer = program_.layers[number];
    std::map<int, std::string> names;
    const auto name_of = [&](int value) -> const std::string& {
      const auto [found, is_new] = names.try_emplace(value);
      if (!is_new) return found->second;
      const auto* input = program_.input_of(value);
      if (input && input->kind != GraphInput::Kind::parameter) return found->second = cat("input ", value);
      found->second = cat("value ", names.size());
      if (input) found->second += cat(c10::IntArrayRef(program_.archive.weights->tensors().at(input->name).shape));
      return found->second;
    };
    std::string text = number + 1 == program_.layers.size() ? "the loss" : "";
    const std::function<void(const GraphArgument&)> add = [&](const GraphArgument& argument) {
      if (argument.value >= 0)
        text += name_of(argument.value);
      else if (!argument.is_list)
        text += cat(argument.constant);
      for (const auto& item : argument.items) add(item);
      text += ',';
    };
    for (const int node : layer.part.nodes) {
      text += cat('\n', program_.graph().nodes[node].text(), ' ');
      for (const auto& argument : program_.graph().nodes[node].arguments) add(argument);
      for (const auto& result : program_.graph().nodes[node].results) name_of(result.value);
    }
    return text;
  }

  // Whether the loss can only be computed for samples of one length.
  bool counts_padding() const {
    const auto& terms = program_.loss.terms;
    return program_.use.predicts != Predicts::segment && std::ranges::any_of(terms, [](const ProgramLossTerm& term) {
             return term.kind != ProgramLossTerm::Kind::cross_entropy;
           });
  }

  // Random numbers in place of what earlier layers compute for a sample.
  Border hidden_states(size_t layer, const Microbatch& sample) const {
    const int64_t number = sample.samples[0].item<int64_t>();
    Border border;
    for (const auto& slot : border_slots(program_, program_.layers[layer].border))
      border.push_back(random_numbers({.seed = kSampleSeed, .op = uint32_t(border.size()), .sample = uint32_t(number)},
                                      {sample.tokens(), slot.features}));
    return border;
  }

  Microbatch sample(int64_t length, size_t number) const {
    const RandomStream stream{.seed = kSampleSeed + number};
    const int64_t most = program_.source_rows() > 0 ? kMostTargets : length;
    int64_t target = program_.has_target() ? std::max<int64_t>(std::min(length / 2, most), 1) : 0;
    if (program_.fixed_target() > 0) target = program_.fixed_target();
    auto ids = at::empty({1, length + target}, at::kLong);
    for (int64_t i = 0; i < ids.numel(); ++i) ids.data_ptr<int64_t>()[i] = random_word(stream, i) % program_.vocab_size;
    Microbatch batch = sample_batch(program_, ids, target);
    for (auto& [name, column] : batch.columns)  // other columns may be indices of the rows of a table
      if (column.is_floating_point()) column = random_numbers(stream, column.sizes().vec()).to(column.scalar_type());
    batch.samples.fill_(int64_t(number));
    batch.segment_samples.fill_(int64_t(number));
    const int64_t labels = std::max<int64_t>(program_.labels, 1);
    if (program_.use.predicts == Predicts::row) batch.labels = batch.ids.remainder(labels);
    if (program_.use.predicts == Predicts::span) batch.targets = at::arange(2).view({1, 2}).remainder(length);
    if (program_.use.predicts == Predicts::segment)
      batch.targets.fill_(batch.targets.is_floating_point() ? int64_t(number) % 2 : int64_t(number) % labels);
    return batch;
  }

  // Biases that are still 0 and norms that are still 1 would hide what depends on them in training.
  at::Tensor value_of(const std::string& parameter) const {
    const at::Tensor value = program_.archive.weights->tensor(parameter).to(at::kDouble);
    const bool is_trained = program_.archive.trainable.at(parameter);
    if (!is_trained || value.numel() == 0 || (value != value.flatten()[0]).any().item<bool>()) return value;
    return value + random_numbers({.seed = kSampleSeed}, value.sizes().vec()).abs();
  }

  std::unique_ptr<Layer> made(size_t number) {
    const LayerSpec& layer = spec_.layers[number];
    parameters_.clear();
    LayerBuild build{.spec = &layer, .tp = world_.get(), .index = int64_t(number)};
    for (size_t i = 0; i < layer.params.size(); ++i)
      parameters_.push_back({.name = layer.full_name(layer.params[i]),
                             .spec = &layer.params[i],
                             .value = value_of(program_.layers[number].parameters[i])});
    for (auto& parameter : parameters_) build.params.push_back(&parameter);
    return layer.build(build);
  }

  // Replaces the layer's input by its results; returns the loss.
  double pass(Layer& layer, const Microbatch& batch, Border& border) const {
    MicrobatchContext context{.batch = &batch, .mode = Mode::evaluate, .predicts = !program_.logits.outputs.empty()};
    border = layer.forward(border, context);
    return context.loss.sum;
  }

  bool is_same(const Border& together, const std::vector<Border>& alone) const {
    for (size_t tensor = 0; tensor < together.size(); ++tensor) {
      int64_t begin = 0;
      for (const auto& sample : alone) {
        const int64_t rows = sample[tensor].size(0);
        if (!are_same(together[tensor].narrow(0, begin, rows), sample[tensor])) return false;
        begin += rows;
      }
    }
    return true;
  }

  // The advice for what mixes samples.
  static constexpr const char* kMixes = "; sums, norms, softmax, sorting and products must not run over the batch";

  // Only the loss depends on the other samples.
  [[noreturn]] void refuse_loss() const {
    throw ConfigError(
        cat(program_.archive.place(), ": its loss, ", program_.loss.text,
            ", is not a mean over samples or labels, so the losses of microbatches do not add up to that ",
            "of the batch", kMixes));
  }

  [[noreturn]] void refuse(size_t layer, const Border& together, const std::vector<Border>& alone) const {
    if (!has_one_length_)
      throw ConfigError(
          cat(program_.archive.place(), ": what layer ", program_.layers[layer].name,
              " computes for a sample depends on padding after it; use attention_mask wherever positions ",
              "are mixed, or leave it out of the arguments if all samples have the same length"));
    // Values of a batch of a fixed size do not show which of them belong to which sample.
    const GraphNode* call = program_.fixed_samples > 0 ? nullptr : guilty_call(layer, together, alone);
    if (!call)
      throw ConfigError(cat(program_.archive.place(), ": what layer ", program_.layers[layer].name,
                            " computes for a sample depends on the other samples of its batch", kMixes));
    throw ConfigError(cat(program_.archive.place(), ": the call to ", call->text(), place_of(*call),
                          " mixes samples: what it computes for one depends on the others of its batch", kMixes));
  }

  // ---- the call

  // All tensors that the layer computes.
  std::vector<c10::IValue> values_of(const GraphPart& part, const Microbatch& rows, const Border& border,
                                     size_t layer) const {
    const ProgramBatch batch(program_, rows);
    const auto slots = border_slots(program_, program_.layers[layer].border);
    const auto exact = [](const at::Tensor& tensor) {
      return tensor.scalar_type() == at::kFloat ? tensor.to(at::kDouble) : tensor;
    };
    std::vector<c10::IValue> inputs;
    for (const int value : part.inputs) {
      const auto* source = program_.input_of(value);
      if (!source) {
        const auto slot = std::ranges::find_if(slots, [&](const BorderSlot& of) { return of.holds(value); });
        inputs.push_back(value_of_rows(value, border.at(slot - slots.begin()), batch).clone());
      } else if (source->kind == GraphInput::Kind::parameter) {
        inputs.push_back(value_of(source->name));
      } else if (source->kind == GraphInput::Kind::user) {
        inputs.push_back(exact(program_argument(*source, batch)));
      } else {
        inputs.push_back(exact(program_.constant(value)));
      }
    }
    return Interpreter(program_.graph(), part, at::kDouble, at::kCPU).run(std::move(inputs), nullptr);
  }

  // rearranged: probably in a different order than one sample after another.
  enum class State { clean, rearranged, mixed };

  // The state of a value, which is `alone` for each sample by itself.
  State state_of(const at::Tensor& together, const std::vector<at::Tensor>& alone) const {
    const int64_t samples = std::ssize(alone);
    int64_t dimension = -1;
    for (int64_t d = 0; d < together.dim(); ++d) {
      if (together.size(d) == alone[0].size(d)) continue;
      if (dimension >= 0 || together.size(d) != samples * alone[0].size(d)) return State::mixed;
      dimension = d;
    }
    for (int64_t i = 0; i < samples; ++i) {
      const int64_t size = dimension < 0 ? 0 : alone[i].size(dimension);
      const at::Tensor part = dimension < 0 ? together : together.narrow(dimension, i * size, size);
      if (!are_same(part, alone[i])) return dimension >= 0 && size > 1 ? State::rearranged : State::mixed;
    }
    return State::clean;
  }

  static bool is_view(const GraphNode& node) {
    const auto op = node.is_operator ? find_operator(node.name, node.overload) : std::nullopt;
    return op && !op->schema().returns().empty() && op->schema().returns()[0].alias_info() &&
           !op->schema().is_mutable();
  }

  // The first call whose results for a sample change when other samples are present although its inputs do not.
  const GraphNode* guilty_call(size_t layer, const Border& border, const std::vector<Border>& borders) const {
    const bool is_last = layer + 1 == program_.layers.size();
    GraphPart part = program_.layers[layer].part;
    if (is_last && !program_.logits.outputs.empty()) {
      std::vector<int> nodes, inputs;
      std::ranges::set_union(part.nodes, program_.logits.nodes, std::back_inserter(nodes));
      std::ranges::set_union(part.inputs, program_.logits.inputs, std::back_inserter(inputs));
      part = {nodes, inputs, {}};
    }
    part.outputs.clear();
    for (const int node : part.nodes)
      for (const auto& result : program_.graph().nodes[node].results) part.outputs.push_back(result.value);
    const auto together = values_of(part, together_, border, layer);
    std::vector<std::vector<c10::IValue>> alone;
    for (size_t i = 0; i < borders.size(); ++i) alone.push_back(values_of(part, alone_[i], borders[i], layer));
    std::vector<State> states(program_.graph().values.size(), State::clean);
    size_t place = 0;
    for (const int number : part.nodes) {
      const GraphNode& node = program_.graph().nodes[number];
      bool takes_rearranged = false;
      for (const auto& argument : node.arguments)
        visit_values(argument, [&](int value) { takes_rearranged |= states[value] == State::rearranged; });
      for (const auto& result : node.results) {
        const auto& value = together[place];
        std::vector<at::Tensor> each;
        for (const auto& of_sample : alone)
          if (value.isTensor()) each.push_back(of_sample[place].toTensor());
        ++place;
        if (!value.isTensor()) continue;
        State& state = states[result.value] = state_of(value.toTensor(), each);
        if (state == State::mixed || (state == State::rearranged && !takes_rearranged && !is_view(node))) return &node;
      }
    }
    return nullptr;
  }

  const Program& program_;
  const ModelSpec& spec_;
  const bool has_one_length_;
  const CommunicatorPtr world_ = make_local_world();
  std::vector<Microbatch> alone_;
  Microbatch together_;
  std::vector<Parameter> parameters_;  // the current layer's parameters
};

}  // namespace

void check_samples(const std::shared_ptr<const Program>& program, const ModelSpec& whole, int64_t length) {
  if (program->fixed_samples == 1) return;  // there are no others
  const auto check = [&](std::vector<int64_t> lengths) {
    if (program->fixed_samples > 0) lengths.resize(std::min<size_t>(lengths.size(), program->fixed_samples));
    for (int64_t& each : lengths) each = std::min(each, whole.max_positions);
    SampleCheck(program, whole, lengths).check();
  };
  if (const int64_t rows = program->fixed_source(); rows > 0) return check({rows, rows});
  try {
    check({6, 6, 6});
    check({9, 9});
  } catch (const RunError&) {  // samples must be longer, or their lengths multiples of a number
    const int64_t source = program->has_target() ? length - length / 3 : length;
    return check({source, source});
  }
  if (program->argument("attention_mask")) check({7, 4, 9});
}

}  // namespace shardline
