#include "engine/commands/parts/measured_profile.h"

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <utility>

#include "core/comm/communicator_base.h"
#include "core/error.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/config/rules/sizes.h"
#include "engine/observe/format.h"
#include "engine/observe/progress.h"
#include "engine/plan/assignment.h"
#include "engine/plan/profile_use.h"
#include "engine/profile/device_times.h"
#include "engine/profile/layer_times.h"
#include "engine/profile/link_times.h"
#include "engine/run/output_dir.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// Replaces the plan on all ranks by the first rank's, whose layers are placed by this profile.
void place_again(const Config& config, const std::shared_ptr<const Profile>& profile, JobParts& parts,
                 Communicator& world) {
  const ResolvedRun run{parts.plan.workload, parts.plan.layout};
  std::string chunks;
  if (world.rank() == 0) {
    parts.machines = planning_machines(config, run.workload, world.size(), {.profile = profile});
    chunks = nlohmann::json(assign_layers(config, run, *parts.machines)).dump();
  }
  chunks = broadcast_string(world, chunks, 0);
  parts.plan = make_plan(run, nlohmann::json::parse(chunks).get<std::vector<int>>());
}

}  // namespace

Profile measure_profile(const Config& config, const JobParts& parts, const RankContext& context) {
  Profile profile{.valid_for = profile_conditions(config, parts.plan, context),
                  .device = measure_device(context, number_types(config).values),
                  .layers = {},
                  .links = {}};
  std::optional<Progress> progress;
  if (context.out) progress.emplace(*context.out, context.console, Progress::LoggedSteps{});
  const auto told = [&](const char* what) {
    return [&progress, what](int64_t done, int64_t total) {
      if (progress) progress->update(done, total, what, Progress::Unit::things);
    };
  };
  measure_layers(config, parts.plan, parts.model, context, profile, told("timing layers"));
  measure_links(parts.groups, context.device, profile, told("timing links"));
  if (progress) progress->finish();
  return profile;
}

std::shared_ptr<const Profile> measured_earlier(const Config& config, const JobParts& parts, const RankContext& context,
                                                const std::string& file) {
  FoundProfile found;
  const auto conditions = profile_conditions(config, parts.plan, context);
  if (context.first() && fs::exists(file)) {
    try {
      found = find_profile(file, conditions, parts.plan, parts.model.spec);
    } catch (const DataError& error) {
      found.why_not = error.what();
    }
  }
  if (context.out && !found.why_not.empty()) *context.out << found.why_not << "\nmeasuring again\n";
  return broadcast_string(*context.world, found.profile ? "holds" : "", 0).empty() ? nullptr
         : found.profile                                                           ? found.profile
                                                                                   : std::make_shared<const Profile>();
}

bool measures_before_training(const Config& config, const Plan& plan, const ModelSource& model) {
  const bool is_placed = config.smp.auto_partition && !config.smp.load_partition;
  const bool has_choice = plan.layout.pipeline > 1 && std::cmp_less(plan.train.chunks(), model.spec.layers.size());
  return model.exported && is_placed && has_choice && config.profile.empty() && plans_for_this_machine(config);
}

void place_by_measured_times(const Config& config, JobParts& parts, const RankContext& context) {
  const auto start = std::chrono::steady_clock::now();
  const std::string file = fs::path(config.output_dir) / kProfileFile;
  auto profile = measured_earlier(config, parts, context, file);
  const bool is_new = !profile;
  if (is_new) profile = std::make_shared<const Profile>(measure_profile(config, parts, context));
  if (is_new && context.first()) write_profile(*profile, file);
  place_again(config, profile, parts, *context.world);
  if (!context.out) return;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  *context.out << "the stages are based on " << file
               << (is_new ? cat(", measured in ", format_duration(seconds.count())) : ", measured earlier") << "\n\n";
}

}  // namespace shardline
