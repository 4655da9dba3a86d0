// The plan: what will run, decided before anything is allocated. One description is printed, checked and executed.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/model/mesh.h"
#include "core/model/model_spec.h"
#include "engine/config/keys/options.h"
#include "engine/config/rules/sizes.h"
#include "engine/plan/planner_case.h"
#include "optim/flat/flat_layout.h"
#include "pipeline/activations/activation_bytes.h"
#include "pipeline/schedule/schedule.h"

namespace shardline {

struct Plan {
  Mesh mesh;
  ResolvedSizes sizes;
  bool sequence_parallel = false;
  std::vector<std::string> layers;  // names, in execution order
  std::vector<SplitUnit> units;     // by their full names; empty where there is nothing to split over
  std::vector<int> chunk_of_layer;  // of the schedules
  std::vector<int> stage_of_layer;
  Schedule train, forward;  // over sizes.microbatches * accumulation, and sizes.microbatches
  ActivationChoices activations;
  Sharding sharding;
  std::vector<ActivationPeak> activation_bytes_by_rank;
  std::vector<int64_t> parameters_by_rank;  // elements stored
  bool operator==(const Plan&) const = default;
};

// Throws ConfigError. The schedules are proven by the checker. chunk_of_layer: as another rank has it, since ranks on
// unlike hosts may judge differently; empty: as engine/plan/assignment.h says.
Plan make_plan(const Config& config, const ModelSpec& spec, int world_size,
               const std::vector<int>& chunk_of_layer = {});
// For a case that the caller has already; `planned` decides the bytes of a value.
Plan make_plan(const Config& config, const PlannerCase& planned, const ResolvedSizes& sizes,
               const std::vector<int>& chunk_of_layer = {});

// The layers of each chunk, ascending.
std::vector<std::vector<int>> layers_of_chunks(const Plan& plan);

// The object that `shardline plan --json` prints and plan.json holds.
nlohmann::json plan_json(const Plan& plan);
// Readable tables: mesh and sizes, stages, the schedule as a grid `width` columns wide, parameters by rank.
std::string plan_text(const Plan& plan, int width);

}  // namespace shardline
