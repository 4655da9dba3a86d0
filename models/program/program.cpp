#include "models/program/program.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"
#include "models/program/gelu_calls.h"
#include "models/program/operators.h"
#include "models/program/program_inputs.h"

namespace shardline {
namespace {

using Predicts = ProgramUse::Predicts;

// The nodes of one layer.
struct Stretch {
  std::string name;
  bool is_block = false;
  int begin = 0;
};

class Cutter {
 public:
  Cutter(Pt2Archive archive, const ProgramUse& use) : program_(std::make_shared<Program>()), use_(program_->use) {
    program_->archive = std::move(archive);
    program_->use = use;
    make_idle_dropouts_aliases(program_->archive.graph);
    make_calls_functional(program_->archive.graph);
    make_gelu_calls(program_->archive.graph, program_->archive.constants);
    make_views_reshapes(program_->archive.graph);
    make_fixed_sizes_numbers(program_->archive.graph);
    // No layer needs an earlier one's tensor for the length of the ids.
    if (const auto* ids = program_->argument(kIdsArgument)) take_sizes_from(program_->archive.graph, ids->value);
    program_->flow = flow_of(graph());
  }

  std::shared_ptr<const Program> cut() {
    check_numbers();
    find_changes();
    find_arguments();
    count_dimensions();
    find_light_values();
    const std::vector<int> logits = find_logits();
    find_loss(logits);
    find_tables();
    const int end = graph().nodes.size();
    const std::vector<int> of_loss = program_->loss.values();
    std::vector<int> wanted = of_loss;
    wanted.insert(wanted.end(), logits.begin(), logits.end());
    std::vector<Stretch> stretches = find_stretches();
    // A first block that takes the arguments is the embedding.
    if (border_of(part_from(stretches[1].begin, wanted, end)).empty()) stretches.erase(stretches.begin() + 1);
    if (stretches.size() < 3) stretches = stretches_of_products();
    if (!program_->columns.empty()) find_source_rows(stretches[1].begin, wanted);
    program_->logits = part_from(stretches.back().begin, logits, end);
    // In reverse, because a layer passes on what later ones need.
    std::vector<ProgramLayer> layers(stretches.size());
    for (size_t i = layers.size(); i-- > 0;) {
      ProgramLayer& layer = layers[i];
      const bool last = i + 1 == layers.size();
      const auto& [name, is_block, begin] = stretches[i];
      const GraphPart whole = part_from(begin, wanted, last ? end : stretches[i + 1].begin);
      layer = {.name = name, .is_block = is_block, .border = border_of(whole)};
      layer.part = last ? part_from(begin, of_loss, end) : whole;
      check_border(layer);
      for (const int value : whole.inputs)
        if (const auto* input = program_->input_of(value); input && input->kind == GraphInput::Kind::parameter)
          layer.parameters.push_back(input->name);
      wanted = layer.border;
    }
    program_->layers = std::move(layers);
    return program_;
  }

 private:
  const Graph& graph() const { return program_->archive.graph; }
  const GraphFlow& flow() const { return program_->flow; }
  const GraphValue& value(int number) const { return graph().values[number]; }

  // wanted: what to export instead.
  [[noreturn]] void refuse(const std::string& what, const std::string& wanted) const {
    const Pt2Archive& archive = program_->archive;
    throw ConfigError(cat(archive.place(), ": ", what, "; ", archive.verb(), " ", wanted));
  }

  // Finds the values that depend on parameters only through arithmetic and lookups of things other than tokens, or that
  // do not depend on the arguments.
  void find_light_values() {
    const int ids = value_of_ids();
    is_light_.assign(graph().values.size(), true);
    std::vector<bool> is_alone(graph().values.size(), true);
    for (const auto& input : graph().inputs) is_alone[input.value] = input.kind != GraphInput::Kind::user;
    for (const auto& node : graph().nodes) {
      bool alone = node.name != kAttention && node.name != kDropout, light = alone && !is_product(node.name);
      if (node.name == kLookup)
        light &= flow().origin(graph(), node.arguments[place_of_argument(node, "indices")].value) != ids;
      for (const auto& argument : node.arguments)
        visit_values(argument, [&](int used) {
          light = light && is_light_[used];
          alone = alone && is_alone[used];
        });
      for (const auto& result : node.results) {
        is_light_[result.value] = light || alone;
        is_alone[result.value] = alone;
      }
    }
  }

  void check_numbers() const {
    for (const auto& [name, entry] : program_->archive.weights->tensors())
      if (entry.dtype != at::kFloat)
        refuse(cat("parameter ", name, " has the dtype ", entry.dtype), "the model with parameters in float32");
  }

  // What the program is given may be used again, so it must not change, except for buffers.
  void find_changes() {
    std::vector<int> buffers;
    for (const auto& input : graph().inputs) {
      if (!program_->is_changed(input.value)) continue;
      const GraphNode& node = graph().nodes[flow().changes.at(flow().storage[input.value]).front()];
      const std::string call = cat("the call to ", node.text(), " changes ");
      if (input.kind != GraphInput::Kind::buffer)
        refuse(cat(call, input.name, " in place"), "a model that changes only tensors that it has made");
      if (const std::string why = why_not_kept(input.value); !why.empty())
        refuse(cat(call, "its buffer ", input.name, ", whose new value ", why),
               "a model whose buffers change only by values computed from buffers and constants, such as counters of "
               "steps");
      buffers.push_back(input.value);
    }
    if (buffers.empty()) return;
    const GraphPart changes = changes_of(buffers);
    BufferStates::Values begin;
    for (const int value : changes.inputs)
      begin[value] = program_->archive.constants.at(program_->input_of(value)->name);
    program_->buffers = std::make_shared<BufferStates>(graph(), changes, std::move(begin));
  }

  GraphPart changes_of(const std::vector<int>& buffers) const {
    return flow().part(graph(), buffers, 0, graph().nodes.size(), [](int) { return false; });
  }

  // Why a changed buffer would not be the same on every rank and in every layout; empty if it is.
  std::string why_not_kept(int buffer) const {
    const GraphPart changes = changes_of({buffer});
    for (const int value : changes.inputs) {
      const GraphInput& input = *program_->input_of(value);
      if (input.kind == GraphInput::Kind::user)
        return cat("depends on ", input.name, ", and so on the samples that a microbatch and a replica have");
      if (input.kind == GraphInput::Kind::parameter)
        return cat("depends on the parameter ", input.name, ", of which a rank may have a part or nothing");
    }
    for (const int number : changes.nodes)
      if (const GraphNode& node = graph().nodes[number]; node.name == kDropout || node.name == kAttention)
        return cat("depends on ", node.text(), ", which draws random numbers");
    return "";
  }

  void find_arguments() {
    std::string known;
    for (const auto& input : graph().inputs)
      if (input.kind == GraphInput::Kind::user) known += cat(known.empty() ? "" : ", ", input.name);
    for (const auto& [name, given] : use_.inputs)
      if (std::ranges::none_of(graph().inputs, [&, name = name](const GraphInput& input) {
            return input.kind == GraphInput::Kind::user && input.name == name;
          }))
        throw ConfigError(cat("/model/inputs/", name, ": the program has no such argument; it has ", known));
    if (has_columns(use_))
      find_columns();
    else if (const auto* ids = program_->argument(kIdsArgument))
      program_->source_length = length_of(*ids);
    else
      refuse(
          cat("the program has no argument ", kIdsArgument),
          "a model that takes token ids, or specify in model.inputs which argument does, or which columns of the data "
          "have tensors for its arguments");
    for (const auto& input : graph().inputs)
      if (input.kind == GraphInput::Kind::user && !value(input.value).sizes.empty()) add_batch(input);
    const auto* labels = program_->argument("labels");
    if (labels) program_->label_dtype = value(labels->value).dtype;
    if (labels && use_.loss_function.empty()) check_labels(*labels);
    if (!program_->has_target()) return;
    const auto* target = labels ? labels : program_->argument("decoder_input_ids");
    if (!target)
      refuse("the program has neither an argument labels nor decoder_input_ids",
             "the model with the labels of its target");
    program_->target_length = length_of(*target);
    if (program_->fixed_target() > 0 && program_->source_length != GraphSize() && program_->fixed_source() == 0)
      refuse("its target has a fixed length, but its source does not", "it with fixed lengths for both or for neither");
    if (program_->fixed_source() > 0 && program_->columns.empty() && program_->fixed_target() == 0)
      refuse("its source has a fixed length, but its target does not", "it with fixed lengths for both or for neither");
    if (program_->target_length == program_->source_length)
      refuse("its source and target have the same length",
             "it with an example whose target has a different length than its source");
  }

  // Arguments are of one batch, whose size is a number if it was fixed in the export. Positions may be the same for
  // all.
  void add_batch(const GraphInput& input) {
    if (has_common_positions(*program_, input)) return;
    const GraphSize& batch = value(input.value).sizes[0];
    const bool is_fixed = batch.expression.empty();
    auto& batches = program_->batches;
    if (!batches.empty() && (is_fixed || program_->fixed_samples > 0) && batches.front() != batch)
      refuse(cat("its ", input.name, " has a batch of ", is_fixed ? cat(batch.number) : "any size",
                 ", but another argument one of ",
                 program_->fixed_samples > 0 ? cat(program_->fixed_samples) : "any size"),
             "it with dynamic_shapes {0: Dim.AUTO} for all of them, or for none");
    if (is_fixed) program_->fixed_samples = batch.number;
    batches.push_back(batch);
  }

  void count_dimensions() {
    if (program_->fixed_samples == 0 && program_->fixed_source() == 0 && program_->fixed_target() == 0) return;
    std::map<int, std::vector<Counts>> of_arguments;
    for (const auto& input : graph().inputs)
      if (input.kind == GraphInput::Kind::user) of_arguments[input.value] = counts_of_argument(*program_, input);
    program_->counted = counted_dimensions(graph(), flow(), of_arguments);
  }

  // Finds the arguments that are given columns of the data, whose sizes are fixed but for the batch.
  void find_columns() {
    for (const auto& input : graph().inputs) {
      if (input.kind != GraphInput::Kind::user || !is_column(program_->given_to(input), use_)) continue;
      const auto& [name, dtype, sizes] = value(input.value);
      TensorColumn column{.name = program_->given_to(input), .dtype = dtype.value_or(at::kFloat)};
      bool is_fixed = dtype && !sizes.empty();
      for (size_t i = 1; i < sizes.size(); ++i) {
        is_fixed &= sizes[i].expression.empty();
        column.sizes.push_back(sizes[i].number);
      }
      if (!is_fixed)
        refuse(cat("its ", input.name, ", which is given the column \"", column.name,
                   "\" of the data, must be [batch, ...] with sizes that are numbers after the batch; the task's own "
                   "data, which are not columns, are ",
                   given_names({.predicts = use_.predicts})),
               "it with dynamic_shapes {0: Dim.AUTO} for this argument");
      const auto other = std::ranges::find(program_->columns, column.name, &TensorColumn::name);
      if (other == program_->columns.end())
        program_->columns.push_back(std::move(column));
      else if (other->sizes != column.sizes || other->dtype != column.dtype)
        refuse(cat("its ", input.name, " and another argument that is given the column \"", column.name,
                   "\" have different sizes or types"),
               "it with equal ones, or give one of them another column in model.inputs");
    }
  }

  // Finds the length of the hidden states that the first block, at node `begin`, takes.
  void find_source_rows(int begin, const std::vector<int>& wanted) {
    const GraphPart part =
        flow().part(graph(), wanted, begin, graph().nodes.size(), [this](int number) { return crosses(number); });
    std::set<int64_t> lengths;
    for (const int number : part.inputs)
      if (const auto& sizes = value(number).sizes;
          flow().producer[number] >= 0 && is_of_rows(number) && !program_->is_of_target(number))
        lengths.insert(sizes[1].number);
    // If blocks take other sizes, such as those of images, a sample has one row with all of its numbers.
    const bool are_known = lengths.empty() || *lengths.begin() > 0;
    if (lengths.size() != 1 && are_known && !program_->has_target()) lengths = {1};
    if (lengths.size() != 1 || *lengths.begin() < 1)
      refuse(cat("its first block takes hidden states [batch, length, features] of ",
                 lengths.empty() || *lengths.begin() < 1 ? "no fixed length" : cat("the lengths ", joined(lengths))),
             "a model whose blocks take hidden states of one fixed length");
    program_->source_length = {.number = *lengths.begin()};
  }

  // The length of an argument [batch, length].
  GraphSize length_of(const GraphInput& input) const {
    const auto& sizes = value(input.value).sizes;
    if (sizes.size() != 2 || sizes[0] == sizes[1])
      refuse(cat("its ", input.name, " must be [batch, length], with two different sizes"),
             "the program with dynamic_shapes for both dimensions");
    return sizes[1];
  }

  void check_labels(const GraphInput& labels) const {
    const auto& sizes = value(labels.value).sizes;
    const bool wants_rows = use_.predicts != Predicts::segment;
    const bool has_rows = wants_rows || program_->label_dtype == at::kLong;  // a sample may have equally many numbers
    const bool by_row = sizes.size() == 2 && (!sizes[1].expression.empty() || use_.predicts == Predicts::target_row ||
                                              (has_rows && sizes[1] == program_->source_length));
    if (use_.predicts != Predicts::span && by_row != wants_rows)
      refuse(cat("its labels are ", by_row ? "one for each token" : "not one for each token",
                 ", but the task's labels are ", wants_rows ? "one for each token" : "one for each sample"),
             "a program for this task, or set task to that of the program");
  }

  std::optional<int> output(const std::string& name) const {
    for (const auto& [of_output, number] : graph().outputs)
      if (of_output == name) return number;
    return {};
  }

  std::string output_names() const {
    std::string names;
    for (const auto& named : graph().outputs) names += cat(names.empty() ? "" : ", ", named.name);
    return names;
  }

  bool is_floating(int number) const { return value(number).dtype && c10::isFloatingType(*value(number).dtype); }

  int named_output(const std::string& key, const std::string& name, size_t least_dimensions = 0) const {
    const auto found = output(name);
    if (!found || !is_floating(*found))
      throw ConfigError(
          cat(key, ": the program returns no floating-point tensor \"", name, "\"; it returns ", output_names()));
    if (value(*found).sizes.size() < least_dimensions)
      throw ConfigError(cat(key, ": the output \"", name, "\" has ", value(*found).sizes.size(),
                            " dimensions, but logits are [batch, ..., labels], such as [batch, 1] for one number; ",
                            program_->archive.verb(),
                            " the program with such logits, or name another output; it returns ", output_names()));
    return *found;
  }

  // The values that predictions are made from; empty if the program does not return them.
  std::vector<int> find_logits() const {
    if (!use_.loss_logits.empty()) return {named_output("/model/loss/logits", use_.loss_logits, 2)};
    const size_t wanted = use_.predicts == Predicts::span ? 2 : 1;
    std::vector<int> found;
    for (const char* name : wanted == 2 ? std::vector{"start_logits", "end_logits"} : std::vector{"logits"})
      if (const auto number = output(name); number && is_floating(*number)) found.push_back(*number);
    if (found.size() == wanted) return found;
    found.clear();
    for (const auto& [name, number] : graph().outputs)
      if (is_floating(number) && value(number).sizes.size() >= 2 && found.size() < wanted) found.push_back(number);
    return found.size() < wanted ? std::vector<int>() : found;
  }

  void find_loss(const std::vector<int>& logits) {
    if (logits.size() == 1 && !value(logits[0]).sizes.empty())
      program_->labels = std::max<int64_t>(value(logits[0]).sizes.back().number, 0);
    if (!use_.loss_function.empty()) {
      const auto kind = loss_function(use_.loss_function);
      if (!kind || use_.predicts == Predicts::span)
        throw ConfigError(cat("/model/loss/function: must be ", loss_functions(), " of a task with one label; got \"",
                              use_.loss_function, '"'));
      if (logits.empty()) throw ConfigError("/model/loss/logits: is required; name an output of the program");
      program_->loss = {.terms = {{.kind = *kind, .input = logits[0], .function = use_.loss_function}},
                        .text = use_.loss_function};
      return;
    }
    std::vector<int> scalars;
    for (const auto& [name, number] : graph().outputs)
      if (is_floating(number) && value(number).sizes.empty()) scalars.push_back(number);
    int scalar = -1;
    if (!use_.loss_output.empty())
      scalar = named_output("/model/loss", use_.loss_output);
    else if (const auto named = output("loss"); named && is_floating(*named))
      scalar = *named;
    else if (scalars.size() == 1)
      scalar = scalars[0];
    else
      refuse(cat("the program must return exactly one scalar, the loss; the number of scalars that it returns is ",
                 scalars.size()),
             scalars.empty()
                 ? cat("the model in training mode with labels among its arguments, or let model.loss compute "
                       "it from one of its outputs (",
                       output_names(), "), as in {\"function\": \"cross_entropy\", \"logits\": \"logits\"}")
                 : "one scalar, or name the loss in model.loss");
    if (!value(scalar).sizes.empty())
      refuse(cat("its output \"", use_.loss_output.empty() ? "loss" : use_.loss_output, "\" is not a scalar"),
             "one whose loss is a scalar, or name another output in model.loss");
    program_->loss = loss_terms(graph(), flow(), scalar);
  }

  static std::string joined(const std::set<int64_t>& numbers) {
    std::string text;
    for (const int64_t number : numbers) text += cat(text.empty() ? "" : ", ", number);
    return text;
  }

  int value_of_ids() const {
    const auto* ids = program_->columns.empty() ? program_->argument(kIdsArgument) : nullptr;
    return ids ? ids->value : -1;
  }

  // The values of a call that takes rows of a table, including a parameter by table[indices]; -1 for other calls.
  std::pair<int, int> table_and_indices(const GraphNode& node) const {
    const auto argument = [&](const char* name) { return node.arguments[place_of_argument(node, name)]; };
    if (node.name == kLookup) return {argument("weight").value, argument("indices").value};
    if (node.text() != "aten::index.Tensor") return {-1, -1};
    const GraphArgument indices = argument("indices");
    const auto* table = program_->input_of(argument("self").value);
    const bool takes_rows = table && table->kind == GraphInput::Kind::parameter && indices.items.size() == 1 &&
                            value(table->value).sizes.size() == 2;
    return takes_rows ? std::pair(table->value, indices.items[0].value) : std::pair(-1, -1);
  }

  void find_tables() {
    const int ids = value_of_ids();
    std::set<int64_t> compared;
    std::optional<int64_t> padding;
    for (size_t i = 0; i < graph().nodes.size(); ++i) {
      const GraphNode& node = graph().nodes[i];
      const bool compares = node.name == "aten::eq" || node.name == "aten::ne";
      if (compares && ids >= 0 && node.overload == "Scalar" && node.arguments[0].value >= 0 &&
          flow().origin(graph(), node.arguments[0].value) == ids && node.arguments[1].constant.isInt())
        compared.insert(node.arguments[1].constant.toInt());
      const auto [table, indices] = table_and_indices(node);
      if (table < 0 || indices < 0 || value(table).sizes.empty()) continue;
      const int64_t rows = value(table).sizes[0].number;
      if (ids >= 0 && flow().origin(graph(), indices) == ids) {
        program_->vocab_size = rows;
        const auto of_table =
            node.name == kLookup ? node.arguments[place_of_argument(node, "padding_idx")].constant : c10::IValue();
        if (of_table.isInt() && of_table.toInt() >= 0) padding = of_table.toInt();
      } else if (!flow().is_trained[indices] && (ids >= 0 || program_->is_of_target(indices)))
        program_->lookups.push_back({part_from(0, {indices}, i), rows});
    }
    if (!padding && !use_.pad_id && compared.size() > 1)
      throw ConfigError(cat(program_->archive.place(), ": the program compares ", kIdsArgument, " with several ids (",
                            joined(compared), "), but its embedding table has no padding_idx; set ",
                            "model.config.pad_token_id to the id of the padding token"));
    program_->pad_id = use_.pad_id ? *use_.pad_id : padding ? *padding : !compared.empty() ? *compared.begin() : 0;
    if (ids < 0) program_->vocab_size = program_->has_target() ? program_->labels : 1;
    if (program_->vocab_size <= 0 && ids < 0)
      refuse("the number of its logits for each token of the target is not fixed", "it with logits of a fixed size");
    if (program_->vocab_size <= 0)
      refuse(cat("it does not look up its ", kIdsArgument, " in a table"),
             "a model that takes token ids, with example labels that are not the same tensor as the ids");
  }

  // The nodes from `begin` on, and those before that are recomputed, which the values need as they are before node
  // `end`.
  GraphPart part_from(int begin, const std::vector<int>& wanted, int end) const {
    return flow().part(graph(), wanted, begin, end, [this](int number) { return crosses(number); });
  }

  // Whether later layers get the value from the layer that computes it; otherwise they recompute it.
  bool crosses(int number) const { return flow().is_trained[number] && (is_hidden(number) || !is_light_[number]); }

  // Whether the value is [batch, length, features] of the source or of the target.
  bool is_hidden(int number) const {
    return is_of_rows(number) &&
           (program_->counts(number, 1, Counts::source) == true || program_->counts(number, 1, Counts::target) == true);
  }

  // The same with any length.
  bool is_of_rows(int number) const {
    const auto& [name, dtype, sizes] = value(number);
    return dtype == at::kFloat && sizes.size() == 3 && program_->counts(number, 0, Counts::samples) == true &&
           sizes[2].expression.empty();
  }

  std::vector<int> border_of(const GraphPart& part) const {
    std::vector<int> border = part.inputs;
    std::erase_if(border, [this](int number) { return flow().producer[number] < 0; });
    return border;
  }

  // What the calls do not show about the sizes of a value that passes from one layer to the next.
  std::string doubt_about(int number) const {
    const auto& sizes = value(number).sizes;
    for (size_t i = 0; i < sizes.size(); ++i)
      for (const Counts what : {Counts::samples, Counts::source, Counts::target})
        if (!program_->counts(number, i, what) && (i == 0) == (what == Counts::samples))
          return cat(", and its calls do not show whether the ", sizes[i].number, " of its dimension ", i, " are the ",
                     i == 0 ? "samples" : "tokens",
                     " that it was exported for (use another number, or dynamic_shapes)");
    return "";
  }

  void check_border(const ProgramLayer& layer) const {
    for (const int number : layer.border)
      if (!hidden_form(*program_, number))
        refuse(cat("layer ", layer.name, " needs the value ", value(number).name, " (made by ",
                   graph().nodes[flow().producer[number]].text(), ") of an earlier one", doubt_about(number)),
               "a model in which only hidden states, [batch, length, features] or other sizes of which only the batch "
               "and one length vary, pass from one layer to the next");
    std::map<int, int> of_storage;
    for (const int number : layer.border) {
      const auto [other, is_new] = of_storage.emplace(flow().storage[number], number);
      const auto changes = flow().changes.find(flow().storage[number]);
      if (!is_new && changes != flow().changes.end())
        refuse(cat("layer ", layer.name, " needs ", value(other->second).name, " and ", value(number).name,
                   " of an earlier one, which share memory that the call to ",
                   graph().nodes[changes->second.front()].text(), " changes in place"),
               "a model that passes one of them, or a copy, from one module to the next");
    }
  }

  // For programs without repeated modules: stretches between the narrowest places that separate products, except for
  // places that are wide compared to those near them, such as inside an MLP. If too few are left: all places.
  std::vector<Stretch> stretches_of_products() const {
    constexpr int kNear = 3;
    constexpr int64_t kWide = 2;  // times the narrowest
    const std::vector<int64_t> widths = flow().widths_of_cuts(graph(), [this](int number) -> int64_t {
      if (!crosses(number)) return 0;
      const auto form = hidden_form(*program_, number);
      return form ? form->features : -1;
    });
    std::vector<int> places;  // before each product: the narrowest one after the product before it
    int begin = 1;
    for (int i = 0; i < std::ssize(graph().nodes); ++i) {
      if (!is_product(graph().nodes[i].name)) continue;
      int best = -1;
      for (int place = begin; place <= i; ++place)
        if (widths[place] > 0 && (best < 0 || widths[place] < widths[best])) best = place;
      if (best >= 0) places.push_back(best);
      begin = i + 1;
    }
    std::vector<int> narrow;
    for (int i = 0; i < std::ssize(places); ++i) {
      int64_t narrowest = widths[places[i]];
      for (int near = std::max(i - kNear, 0); near < std::min<int>(i + kNear + 1, places.size()); ++near)
        narrowest = std::min(narrowest, widths[places[near]]);
      if (widths[places[i]] <= kWide * narrowest) narrow.push_back(places[i]);
    }
    std::vector<Stretch> stretches = {{.name = "embedding"}};
    for (const int place : narrow.size() < 2 ? places : narrow)
      stretches.push_back({cat("part.", stretches.size() - 1), true, place});
    if (stretches.size() < 2)
      refuse(
          "the program has neither modules NAME.0, NAME.1, ... of one class that run one after the other nor "
          "products between which only hidden states pass",
          "a model whose blocks are in a ModuleList");
    stretches.back() = {.name = "head", .begin = stretches.back().begin};
    return stretches;
  }

  std::vector<Stretch> find_stretches() const {
    std::vector<Stretch> stretches = {{.name = "embedding"}};
    int end = 0;
    const std::vector<ModuleRun> all = repeated_modules(graph());
    if (all.empty()) return stretches_of_products();
    for (const auto& blocks : all) {
      if (stretches.size() > 1 && end < blocks.begin())
        stretches.push_back({.name = blocks.path + ".embedding", .begin = end});
      for (size_t i = 0; i < blocks.begins.size(); ++i)
        stretches.push_back({cat(blocks.path, '.', i), true, blocks.begins[i]});
      end = blocks.end;
    }
    stretches.push_back({.name = "head", .begin = end});
    return stretches;
  }

  std::shared_ptr<Program> program_;
  const ProgramUse& use_;
  std::vector<bool> is_light_;  // by value
};

}  // namespace

const std::string& Program::given_to(const GraphInput& argument) const {
  const auto found = use.inputs.find(argument.name);
  return found == use.inputs.end() ? argument.name : found->second;
}

const GraphInput* Program::argument(const std::string& given) const {
  const auto found = std::ranges::find_if(archive.graph.inputs, [&](const GraphInput& input) {
    return input.kind == GraphInput::Kind::user && given_to(input) == given;
  });
  return found == archive.graph.inputs.end() ? nullptr : &*found;
}

const GraphInput* Program::input_of(int value) const {
  const auto found = std::ranges::find(archive.graph.inputs, value, &GraphInput::value);
  return found == archive.graph.inputs.end() ? nullptr : &*found;
}

at::Tensor Program::constant(int value) const {
  const GraphInput* input = input_of(value);
  const bool is_constant =
      input && (input->kind == GraphInput::Kind::buffer || input->kind == GraphInput::Kind::constant);
  if (!is_constant) return {};
  const at::Tensor& constant = archive.constants.at(input->name);
  return is_changed(value) ? constant.clone() : constant;
}

bool Program::is_of_target(int value) const {
  if (graph().values[value].sizes.size() < 2) return false;
  const bool is_length_first = counts(value, 0, Counts::samples) == false && counts(value, 1, Counts::samples) == true;
  return counts(value, is_length_first ? 0 : 1, Counts::target).value_or(true);
}

std::optional<bool> Program::counts(int value, size_t dimension, Counts what) const {
  const GraphSize& size = graph().values[value].sizes[dimension];
  const bool fits = what == Counts::samples  ? std::ranges::count(batches, size) > 0
                    : what == Counts::source ? size == source_length
                                             : has_target() && size == target_length;
  // Columns have the same number of rows for all samples, so it does not matter what the rows are.
  const bool is_clear = !size.expression.empty() || size.number == 1 || (what == Counts::source && !columns.empty());
  if (!fits || is_clear) return fits;
  const bool is_known = std::cmp_less(value, counted.size()) && dimension < counted[value].size();
  const Counts counts = is_known ? counted[value][dimension] : Counts::unknown;
  if (counts == what || (what == Counts::samples && counts == Counts::repeated)) return true;
  return counts == Counts::unknown || counts == Counts::repeated ? std::nullopt : std::optional(false);
}

std::shared_ptr<const Program> cut_program(Pt2Archive archive, const ProgramUse& use) {
  return Cutter(std::move(archive), use).cut();
}

}  // namespace shardline
