// The plan: what will run, decided before anything is allocated. One description is printed, checked and executed.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/model/mesh.h"
#include "core/model/model_spec.h"
#include "engine/plan/machines.h"
#include "engine/plan/resolve.h"
#include "engine/run/model_source.h"
#include "partitioner/memory/rank_memory.h"
#include "pipeline/schedule/schedule.h"

namespace shardline {

struct Plan {
  Workload workload;
  Layout layout;
  std::vector<int> chunk_of_layer;  // chunks of `train`
  std::vector<int> stage_of_layer;
  Schedule train, forward;  // over the microbatches of a step, and over those of one accumulation step
  std::vector<ActivationPeak> activation_bytes_by_rank;
  std::vector<int64_t> parameters_by_rank;  // elements stored
};

// Model, machines and plan, without ranks or weights.
struct PlannedModel {
  ModelSource model;
  Machines machines;
  Plan plan;
};
// Makes the plan from the config. The second form plans for a model that open_model has opened and check_program has
// accepted. Throws ConfigError or DataError.
PlannedModel plan_model(const Config& config, int world_size, const Assumptions& assumed = {});
PlannedModel plan_model(ModelSource model, const Config& config, int world_size, const Assumptions& assumed = {});

// Plans a run whose layers are on the chunks that chunk_of_layer gives; the checker proves the schedules. Throws
// ConfigError.
Plan make_plan(const ResolvedRun& run, const std::vector<int>& chunk_of_layer);

// The model's units under their full names; empty if T is 1.
std::vector<SplitUnit> units_of(const Plan& plan);

// The input of the memory model; refers to the plan, which must outlive it.
PlacedLayers placed_layers(const Plan& plan);

// The layers of each chunk, ascending.
std::vector<std::vector<int>> layers_of_chunks(const Plan& plan);

// The object that `shardline plan --json` prints and plan.json holds.
nlohmann::json plan_json(const Plan& plan);
// Readable tables: mesh and sizes, stages with their layers, ranks, parameters and activations, split units, and the
// schedule as a grid `width` columns wide.
std::string plan_text(const Plan& plan, int width);

}  // namespace shardline
