#include "engine/plan/plan.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "core/model/layer.h"
#include "engine/config/keys/recompute_rules.h"
#include "engine/config/rules/findings.h"
#include "engine/config/rules/sizes.h"
#include "engine/observe/format.h"
#include "engine/plan/assignment.h"
#include "engine/plan/sharding.h"
#include "engine/plan/tensor_splits.h"
#include "models/program/layers/program_layers.h"
#include "partitioner/memory/layer_bytes.h"
#include "pipeline/schedule/checker.h"
#include "pipeline/schedule/kinds/schedule_choice.h"
#include "pipeline/schedule/kinds/schedule_generators.h"
#include "pipeline/schedule/pictures/schedule_grid.h"

namespace shardline {
namespace {

int64_t stored_elements(const ModelSpec& spec, const std::vector<int>& stage_of_layer, Coordinates at, int t_degree) {
  int64_t elements = 0;
  std::set<std::string> seen;  // a tied parameter is stored once on a rank
  for (size_t layer = 0; layer < spec.layers.size(); ++layer)
    for (const auto& param : spec.layers[layer].params) {
      if (stage_of_layer[layer] != at.p) continue;
      if (!seen.insert(param.tied_to.empty() ? spec.layers[layer].full_name(param) : param.tied_to).second) continue;
      const auto shape = param.local_shape(at.t, t_degree);
      elements += std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    }
  return elements;
}

Recompute recompute_of(const Plan& plan, size_t layer) {
  return plan.layout.recompute.empty() ? Recompute() : plan.layout.recompute[layer];
}

// The recompute strategy of each layer.
nlohmann::json recompute_names(const Plan& plan) {
  nlohmann::json names = nlohmann::json::object();
  const auto& layers = plan.workload.spec.layers;
  for (size_t layer = 0; layer < layers.size(); ++layer)
    names[layers[layer].name] = to_string(recompute_of(plan, layer));
  return names;
}

nlohmann::json units_json(const std::vector<SplitUnit>& units) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& unit : units)
    list.push_back({{"unit", unit.name},
                    {"parts", unit.parts},
                    {"count", unit.count},
                    {"split", unit.split},
                    {"because", unit.why}});
  return list;
}

bool is_graph(const ModelSpec& spec) {
  return spec.family == kExportedFamily || spec.family == kTracedFamily;
}

// "recomputed: each (8 layers), 2 layers kept; inputs of recomputed layers offloaded until 4 instructions before their
// use"
std::string activations_text(const Plan& plan) {
  std::map<std::string, int> layers;
  for (size_t layer = 0; layer < plan.chunk_of_layer.size(); ++layer) ++layers[to_string(recompute_of(plan, layer))];
  const int kept = std::exchange(layers["none"], 0);
  std::string text;
  for (const auto& [name, count] : layers)
    if (count > 0) text += cat(text.empty() ? "recomputed: " : ", ", name, " (", count, " layers)");
  text = text.empty() ? "all kept" : cat(text, ", ", kept, " layers kept");
  const auto& offload = plan.layout.offload;
  if (!offload.enabled) return text;
  const char* moved = !offload.everything            ? "; inputs of recomputed layers"
                      : is_graph(plan.workload.spec) ? "; hidden states between layers"
                                                     : "; everything";
  return cat(text, moved, " offloaded until ", offload.horizon, " instructions before their use");
}

// "590.6k of 124.4M parameters; layers before h.11 only run forward"
std::string trained_text(const ModelSpec& spec) {
  const int64_t all = spec.parameter_count(), trained = spec.trained_count();
  if (trained == all) return "all parameters";
  const std::string text = cat(format_count(trained), " of ", format_count(all), " parameters");
  const int first = spec.first_with_backward();
  return first == 0 ? text : cat(text, "; layers before ", spec.layers[first].name, " only run forward");
}

std::string tensor_text(const Plan& plan) {
  if (plan.layout.tensor == 1) return "off";
  const std::string text = plan.layout.sequence_parallel ? "memory (sequence parallel)" : "speed";
  const ModelSpec& spec = plan.workload.spec;
  return is_graph(spec) ? cat(text, ", ", spec.variant) : text;  // which says how much is split
}

}  // namespace

std::vector<SplitUnit> units_of(const Plan& plan) {
  std::vector<SplitUnit> units;
  if (plan.layout.tensor == 1) return units;
  for (const auto& layer : plan.workload.spec.layers)
    for (const auto& unit : layer.units)
      units.push_back({layer.full_name(unit), unit.parts, unit.count, unit.split, unit.why});
  return units;
}

PlannedModel plan_model(const Config& config, int world_size, const Assumptions& assumed) {
  ModelSource model = open_model(config);
  check_program(config, model);
  return plan_model(std::move(model), config, world_size, assumed);
}

PlannedModel plan_model(ModelSource model, const Config& config, int world_size, const Assumptions& assumed) {
  const int replicas = resolve_sizes(config, world_size).replicas;
  Findings findings;
  findings.check([&] { recompute_by_layer(config.smp.activation_checkpointing, model.spec); });
  findings.check([&] { asked_splits(config, model.spec); });
  findings.check([&] { sharding_of(config.smp, replicas); });
  findings.throw_all();
  model.spec = make_spec(config, model, decide_splits(config, model, world_size, assumed));
  const ResolvedRun run = resolve(config, model.spec, world_size, assumed.precision);
  Machines machines = planning_machines(config, run.workload, world_size, assumed);
  Plan plan = make_plan(run, assign_layers(config, run, machines));
  return {std::move(model), std::move(machines), std::move(plan)};
}

Plan make_plan(const ResolvedRun& run, const std::vector<int>& chunk_of_layer) {
  const auto& [workload, layout] = run;
  Plan plan{.workload = workload, .layout = layout, .chunk_of_layer = chunk_of_layer};
  plan.train = without_backward_before(training_schedule(layout), first_backward_chunk(workload.spec, chunk_of_layer));
  plan.forward = forward_schedule(plan.train.stage_of_chunk, layout.pipeline, layout.microbatches_per_accumulation());
  check_schedule(plan.train);
  check_schedule(plan.forward);
  for (const int chunk : chunk_of_layer) plan.stage_of_layer.push_back(plan.train.stage_of_chunk[chunk]);

  const Mesh mesh = layout.mesh();
  const PlacedLayers placed = placed_layers(plan);
  const auto held = border_bytes_held(placed);
  std::map<std::pair<int, int>, std::pair<int64_t, ActivationPeak>> of;  // by stage and t; replicas are equal
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const Coordinates at = mesh.at(rank);
    auto& [parameters, bytes] = of[{at.p, at.t}];
    if (at.d == 0) {
      parameters = stored_elements(workload.spec, plan.stage_of_layer, at, layout.tensor);
      bytes = activation_peak(placed, at.p, layer_bytes(workload, layout, at.t), held[at.p]);
    }
  }
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const Coordinates at = mesh.at(rank);
    plan.parameters_by_rank.push_back(of[{at.p, at.t}].first);
    plan.activation_bytes_by_rank.push_back(of[{at.p, at.t}].second);
  }
  return plan;
}

PlacedLayers placed_layers(const Plan& plan) {
  return {plan.workload, plan.layout, plan.train, plan.chunk_of_layer};
}

std::vector<std::vector<int>> layers_of_chunks(const Plan& plan) {
  std::vector<std::vector<int>> chunks(plan.train.chunks());
  for (size_t layer = 0; layer < plan.chunk_of_layer.size(); ++layer)
    chunks[plan.chunk_of_layer[layer]].push_back(layer);
  return chunks;
}

nlohmann::json plan_json(const Plan& plan) {
  const Mesh mesh = plan.layout.mesh();
  nlohmann::json stages = nlohmann::json::array(), ranks = nlohmann::json::array();
  for (int stage = 0; stage < plan.train.stages; ++stage)
    stages.push_back({{"stage", stage}, {"chunks", nlohmann::json::array()}});
  const auto chunks = layers_of_chunks(plan);
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    nlohmann::json names = nlohmann::json::array();
    for (int layer : chunks[chunk]) names.push_back(plan.workload.spec.layers[layer].name);
    stages[plan.train.stage_of_chunk[chunk]]["chunks"].push_back(names);
  }
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const Coordinates at = mesh.at(rank);
    ranks.push_back({{"rank", rank},
                     {"d", at.d},
                     {"stage", at.p},
                     {"t", at.t},
                     {"parameters", plan.parameters_by_rank[rank]},
                     {"activation_bytes", plan.activation_bytes_by_rank[rank].kept}});
  }
  const Layout& layout = plan.layout;
  return {{"mesh", mesh},
          {"sizes",
           {{"global_batch", layout.global_batch()},
            {"replica_batch", layout.replica_batch()},
            {"microbatch_size", layout.microbatch_size},
            {"microbatches", layout.microbatches_per_accumulation()},
            {"accumulation_steps", layout.accumulation_steps}}},
          {"trained_parameters", plan.workload.spec.trained_count()},
          {"sequence_parallel", layout.sequence_parallel},
          {"sharding", {{"stage", static_cast<int>(layout.sharding.level)}, {"degree", layout.sharding.degree}}},
          {"tensor_parallel_units", units_json(units_of(plan))},
          {"tensor_parallel", tensor_text(plan)},
          {"stages", stages},
          {"recompute", recompute_names(plan)},
          {"offload",
           {{"enabled", layout.offload.enabled},
            {"scope", layout.offload.everything ? "all" : "checkpointed"},
            {"loading_horizon", layout.offload.horizon}}},
          {"schedule", plan.train},
          {"bubble_fraction", bubble_fraction(plan.train)},
          {"ranks", ranks}};
}

std::string plan_text(const Plan& plan, int width) {
  const Layout& layout = plan.layout;
  const Mesh mesh = layout.mesh();
  std::string text =
      table({}, {{"mesh", cat(layout.replicas, " x ", layout.pipeline, " x ", layout.tensor, " (D x P x T), placement ",
                              layout.placement.letters())},
                 {"tensor parallel", tensor_text(plan)},
                 {"global batch", cat(layout.global_batch(), " samples = ", layout.microbatch_size, " x ",
                                      layout.microbatches_per_accumulation(), " microbatches x ",
                                      layout.accumulation_steps, " accumulation x ", layout.replicas, " replicas")},
                 {"schedule", cat(plan.train.name, ", bubble ", std::round(1000 * bubble_fraction(plan.train)) / 10,
                                  " % with equal costs")},
                 {"activations", activations_text(plan)},
                 {"trained", trained_text(plan.workload.spec)},
                 {"sharded", to_string(layout.sharding, layout.replicas)}});
  std::vector<TableRow> stages;
  const auto up_to_eight = [](const std::vector<std::string>& words, const char* between) {
    std::string list;
    for (size_t i = 0; i < std::min<size_t>(words.size(), 8); ++i) list += (i == 0 ? "" : between) + words[i];
    return words.size() <= 8 ? list : cat(list, between, "... (", words.size(), ")");
  };
  const auto chunks = layers_of_chunks(plan);
  for (int stage = 0; stage < plan.train.stages; ++stage) {
    std::string layers;
    std::vector<std::string> ranks, parameters;
    size_t count = 0;
    int64_t activations = 0;
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      if (plan.train.stage_of_chunk[chunk] != stage) continue;
      const auto& first = plan.workload.spec.layers[chunks[chunk].front()].name;
      const auto& last = plan.workload.spec.layers[chunks[chunk].back()].name;
      layers += cat(layers.empty() ? "" : ", ", first == last ? first : first + " ... " + last);
      count += chunks[chunk].size();
    }
    for (int rank = 0; rank < mesh.size(); ++rank) {
      if (mesh.at(rank).p != stage) continue;
      if (mesh.at(rank).d == 0) parameters.push_back(format_count(plan.parameters_by_rank[rank]));
      activations = std::max(activations, plan.activation_bytes_by_rank[rank].kept);
      ranks.push_back(std::to_string(rank));
    }
    stages.push_back({std::to_string(stage), layers, std::to_string(count), up_to_eight(ranks, " "),
                      up_to_eight(parameters, " + "), format_bytes(activations)});
  }
  text += "\n" + table({"stage", "layers", "count", "ranks", "parameters by t", "activations"}, stages);
  if (const auto units = units_of(plan); !units.empty()) text += "\n" + splits_text(units);
  return text + "\n" + text_grid(plan.train, width);
}

}  // namespace shardline
