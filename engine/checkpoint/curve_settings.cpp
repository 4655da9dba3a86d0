#include "engine/checkpoint/curve_settings.h"

#include <xxhash.h>

#include <bit>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/hex.h"
#include "core/memory/tensor_data.h"
#include "models/program/program_file.h"

namespace shardline {

using nlohmann::json;

constexpr const char* kTotalSteps = "/training (total steps)";
constexpr const char* kAccumulation = "/training/gradient_accumulation_steps";

json curve_settings(const Config& config, const CurveFacts& facts) {
  const TrainingOptions& t = config.training;
  const auto patterns = [](const std::vector<NamePattern>& list) {
    json texts = json::array();
    for (const auto& pattern : list) texts.push_back(pattern.text());
    return texts;
  };
  json settings = {{"/data (digest)", facts.data},
                   {"/data/sequence_length", config.data.sequence_length},
                   {"/data/shuffle", t.train_sampling_strategy != SamplingStrategy::sequential},
                   {kGlobalBatchSetting, facts.global_batch},
                   {"/training/dataloader_drop_last", t.dataloader_drop_last},
                   {"/training/seed", t.seed},
                   {"/training/data_seed", t.data_seed.value_or(t.seed)},
                   {"/training/learning_rate", t.learning_rate},
                   {"/training/lr_scheduler_type", word_of(t.lr_scheduler_type)},
                   {"/training/lr_scheduler_kwargs", t.lr_scheduler_kwargs},
                   {"/training/warmup_steps", t.warmup_steps},
                   {"/training/optim", word_of(t.optim)},
                   {"/training/optim_args", t.optim_args.value_or("")},
                   {"/training/weight_decay", t.weight_decay},
                   {"/training/no_decay_patterns", patterns(t.no_decay_patterns)},
                   {"/training/adam_beta1", t.adam_beta1},
                   {"/training/adam_beta2", t.adam_beta2},
                   {"/training/adam_epsilon", t.adam_epsilon},
                   {"/training/max_grad_norm", t.max_grad_norm},
                   {"/training/max_grad_value", t.max_grad_value},
                   {"/model/config", facts.model_config}};
  if (!facts.program.empty()) {
    settings["/model (program)"] = facts.program;
    settings["/model/inputs"] = config.model.inputs;
    settings["/model/loss"] = config.model.loss;
    json& model = settings["/model/config"];
    model.erase(kProgramName);  // a file that may have been renamed
    model.update(config.model.config);
  }
  // The two are the same AdamW.
  if (t.optim == Optim::adamw_torch) settings["/training/optim"] = word_of(Optim::adamw_torch_fused);
  if (!t.trainable.empty()) settings["/training/trainable"] = patterns(t.trainable);
  if (t.label_smoothing_factor != 0) settings["/training/label_smoothing_factor"] = t.label_smoothing_factor;
  if (t.neftune_noise_alpha) settings["/training/neftune_noise_alpha"] = *t.neftune_noise_alpha;
  if (t.train_sampling_strategy == SamplingStrategy::group_by_length)
    settings["/training/train_sampling_strategy"] = word_of(t.train_sampling_strategy);
  if (config.data.used_packing() != config.data.usual_packing())
    settings["/data/packing"] = word_of(config.data.used_packing());
  if (config.task == kMaskedLm) {
    settings["/data/mlm_probability"] = config.data.mlm_probability;
    settings["/data/whole_word_mask"] = config.data.whole_word_mask;
  }
  if (t.dataloader_drop_last) settings[kAccumulation] = facts.loader_batches;
  bool follows_total = t.lr_scheduler_type != RateSchedule::constant;
  if (t.lr_scheduler_type == RateSchedule::reduce_lr_on_plateau) {
    settings["/training/eval_strategy"] = word_of(t.eval_strategy);
    settings["/training/eval_delay"] = t.eval_delay;
    settings["/training/metric_for_best_model"] = facts.comparison;
    const double steps = t.eval_steps.value_or(t.logging_steps);
    if (t.eval_strategy == EvalStrategy::steps) settings["/training/eval_steps"] = steps;
    follows_total = t.eval_strategy == EvalStrategy::steps && steps < 1;  // a share of all steps
  }
  if (follows_total) settings[kTotalSteps] = facts.total_steps;
  return settings;
}

namespace {

// Numbers are written with all their bits.
void write_constant(std::ostream& out, const c10::IValue& value) {
  if (value.isDouble())
    out << 'd' << std::bit_cast<uint64_t>(value.toDouble());
  else if (value.isDoubleList())
    for (const double number : value.toDoubleVector()) out << ",d" << std::bit_cast<uint64_t>(number);
  else
    out << value.tagKind() << value;
}

void write_argument(std::ostream& out, const GraphArgument& argument) {
  out << ' ' << static_cast<int>(argument.as);
  if (argument.is_list) {
    out << '[';
    for (const auto& item : argument.items) write_argument(out, item);
    out << ']';
  } else if (argument.value >= 0) {
    out << '%' << argument.value;
  } else {
    write_constant(out, argument.constant);
  }
}

void write_node(std::ostream& out, const GraphNode& node) {
  out << node.text() << node.has_grad;
  if (node.autocast) out << " autocast " << (node.autocast->half ? c10::toString(*node.autocast->half) : "off");
  for (const auto& argument : node.arguments) write_argument(out, argument);
  for (const auto& result : node.results) out << " -> " << result.place << ' ' << result.item << " %" << result.value;
  out << '\n';
}

}  // namespace

std::string graph_digest(const Pt2Archive& archive) {
  std::ostringstream out;
  for (const auto& input : archive.graph.inputs)
    out << static_cast<int>(input.kind) << input.name << " %" << input.value << '\n';
  for (const auto& node : archive.graph.nodes) write_node(out, node);
  for (const auto& output : archive.graph.outputs) out << output.name << " %" << output.value << '\n';
  for (const auto& [name, tensor] : archive.constants) {
    const at::Tensor values = tensor.contiguous();
    out << name << values.scalar_type() << values.sizes() << XXH3_64bits(data_of<char>(values), values.nbytes())
        << '\n';
  }
  const std::string text = out.str();
  return hex_digits(XXH3_64bits(text.data(), text.size()));
}

namespace {

// Appends a line for each difference; compares objects member by member.
void add_differences(std::string& lines, const std::string& key, const json* before, const json* now) {
  if (before && now && *before == *now) return;
  if (before && now && before->is_object() && now->is_object()) {
    std::set<std::string> members;
    for (const json* object : {before, now})
      for (const auto& [name, value] : object->items()) members.insert(name);
    const auto member = [](const json& object, const std::string& name) {
      return object.contains(name) ? &object.at(name) : nullptr;
    };
    for (const auto& name : members)
      add_differences(lines, key.empty() ? name : cat(key, "/", name), member(*before, name), member(*now, name));
    return;
  }
  const auto shown = [](const json* value) { return value ? json_shown(*value) : std::string("not set"); };
  // The number follows from other keys.
  const std::string name = key == kTotalSteps ? "/training/max_steps or num_train_epochs (total steps)" : key;
  lines += cat(lines.empty() ? "" : "\n", name, ": ", shown(before), " in the checkpoint, ", shown(now), " now");
}

}  // namespace

std::string curve_differences(const json& of_checkpoint, const json& now) {
  std::string lines;
  add_differences(lines, "", &of_checkpoint, &now);
  return lines;
}

bool has_only_smaller_batch(const json& of_checkpoint, const json& now, bool steps_follow) {
  const auto batch = [](const json& settings) {
    const auto value = settings.find(kGlobalBatchSetting);
    return value != settings.end() && value->is_number_integer() ? value->get<int64_t>() : 0;
  };
  if (batch(now) >= batch(of_checkpoint)) return false;
  const auto rest = [&](json settings) {
    for (const char* key : {kGlobalBatchSetting, kAccumulation}) settings.erase(key);
    if (steps_follow) settings.erase(kTotalSteps);
    return settings;
  };
  return curve_differences(rest(of_checkpoint), rest(now)).empty();
}

}  // namespace shardline
