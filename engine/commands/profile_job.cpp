#include <filesystem>
#include <optional>
#include <ostream>

#include "core/error.h"
#include "engine/commands/job.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/config/rules/sizes.h"
#include "engine/observe/format.h"
#include "engine/plan/profile_use.h"
#include "engine/profile/device_times.h"
#include "engine/profile/layer_times.h"
#include "engine/profile/link_times.h"
#include "engine/run/output_dir.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

std::string profile_text(const Profile& profile) {
  std::vector<TableRow> layers, links;
  const auto bytes = [](double count) { return format_bytes(count); };
  for (const auto& layer : profile.layers)
    layers.push_back({layer.name, format_count(layer.parameters), format_duration(layer.forward_seconds),
                      format_duration(layer.backward_seconds), format_duration(layer.backward_input_seconds),
                      format_duration(layer.backward_weight_seconds),
                      format_count(layer.forward_flops + layer.backward_flops), bytes(layer.kept_bytes),
                      bytes(layer.border_bytes)});
  std::string text =
      table({"layer", "parameters", "forward", "backward", "input half", "weight half", "flops", "keeps", "passes on"},
            layers);
  for (const auto& link : profile.links)
    links.push_back({link.group, std::to_string(link.ranks), link.operation, format_duration(link.seconds.front()),
                     cat(bytes(link.bytes.back() / link.seconds.back()), "/s")});
  if (!links.empty()) text += "\n" + table({"group", "ranks", "operation", "shortest", "rate"}, links);
  const auto& device = profile.device;
  return cat(text, "\neach rank: ", format_count(device.flops_per_second), "FLOP/s in a large product, ",
             bytes(device.memory_bytes_per_second), "/s through memory, ",
             format_duration(1e6 * profile.optimizer_seconds_per_stored), " to update a million parameters\n");
}

Profile measure(const Config& config, const JobParts& parts, const RankContext& context) {
  Profile profile{.valid_for = profile_conditions(config, parts.plan, context),
                  .device = measure_device(context, number_types(config).values),
                  .layers = {},
                  .links = {}};
  std::optional<Progress> progress;
  if (context.out) progress.emplace(*context.out, context.console, Progress::LoggedSteps{});
  const auto told = [&](const char* what) {
    return [&progress, what](int64_t done, int64_t total) {
      if (progress) progress->update(done, total, what);
    };
  };
  measure_layers(config, parts.plan, parts.model, context, profile, told("timing layers"));
  measure_links(parts.groups, context.device, profile, told("timing links"));
  if (progress) progress->finish();
  return profile;
}

// The profile in the file, if it can be used; rank 0 decides, and prints the reason if not. Collective over the world.
std::shared_ptr<const Profile> measured_earlier(const Config& config, const JobParts& parts, const RankContext& context,
                                                const fs::path& file) {
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

}  // namespace

void check_profile(const Config& config) {
  plan_model(config, configured_world_size(config));
}

void profile_job(const Config& written, const std::string& path, RankContext& context) {
  const Config config = completed_config(written, *context.world, /*trains=*/true);
  const JobParts parts = make_parts(config, context);
  const fs::path file = path.empty() ? fs::path(config.output_dir) / kProfileFile : fs::path(path);
  const auto earlier = measured_earlier(config, parts, context, file);
  std::optional<OutputLock> lock;  // a run in the same directory would disturb the measurement
  if (!earlier && path.empty() && context.first()) {
    fs::create_directories(config.output_dir);
    lock.emplace(config.output_dir, "/output_dir", config.output_dir);
  }
  Profile profile;
  if (earlier)
    profile = *earlier;
  else
    explain_memory(parts, context, /*trains=*/true, [&] { profile = measure(config, parts, context); });
  if (!context.out) return;
  *context.out << profile_text(profile);
  if (earlier) {
    *context.out << file.string() << " is still valid; remove it to measure again\n";
    return;
  }
  std::error_code ignored;  // writing the profile reports the error
  if (file.has_parent_path()) fs::create_directories(file.parent_path(), ignored);
  write_profile(profile, file);
  *context.out << "written to " << file.string() << '\n';
}

}  // namespace shardline
