#include <filesystem>
#include <optional>
#include <ostream>

#include "core/error.h"
#include "engine/commands/job.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/commands/parts/measured_profile.h"
#include "engine/config/rules/sizes.h"
#include "engine/observe/format.h"
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

}  // namespace

void check_profile(const Config& config) {
  plan_model(config, configured_world_size(config));
}

void profile_job(const Config& written, const std::string& path, RankContext& context) {
  const Config config = completed_config(written, *context.world, /*trains=*/true);
  const JobParts parts = make_parts(config, context);
  const fs::path file = path.empty() ? fs::path(config.output_dir) / kProfileFile : fs::path(path);
  const auto earlier = measured_earlier(config, parts, context, file.string());
  std::optional<OutputLock> lock;  // a run in the same directory would disturb the measurement
  if (!earlier && path.empty() && context.first()) {
    fs::create_directories(config.output_dir);
    lock.emplace(config.output_dir, "/output_dir", config.output_dir);
  }
  Profile profile;
  if (earlier)
    profile = *earlier;
  else
    explain_memory(parts, context, /*trains=*/true, [&] { profile = measure_profile(config, parts, context); });
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
