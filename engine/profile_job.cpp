#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <ostream>
#include <set>

#include "core/error.h"
#include "engine/job.h"
#include "engine/job_parts.h"
#include "engine/layer_times.h"
#include "engine/link_times.h"
#include "engine/observe/format.h"
#include "partitioner/profile.h"
#include "tensor_parallel/products.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// The rest of the line that begins with `key` in a file of the kernel, without what separates them.
std::string value_in(const fs::path& file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key)) return line.substr(std::min(line.size(), line.find_first_not_of(" \t:", key.size())));
  return "";
}

std::string device_name(at::Device device) {
  if (device.is_cpu()) return value_in("/proc/cpuinfo", "model name");
  std::set<fs::path> gpus;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", error)) gpus.insert(entry.path());
  const auto index = static_cast<size_t>(std::max<int>(0, device.index()));
  return index < gpus.size() ? value_in(*std::next(gpus.begin(), static_cast<std::ptrdiff_t>(index)) / "information",
                                        "Model")
                             : device.str();
}

// What a profile is valid for.
std::map<std::string, std::string> profile_conditions(const Config& config, const Plan& plan,
                                                      const RankContext& context) {
  return {{"device", device_name(context.device)},
          {"ranks_per_host", std::to_string(context.local_size)},
          {"threads_per_rank", std::to_string(at::get_num_threads())},
          {"products", products_in_use()},
          {"communicator", resolved_communicator(config)},
          {"torch", TORCH_VERSION},
          {"shardline", SHARDLINE_VERSION},
          {"dtype", config.runtime.dtype},
          {"tensor_parallel_degree", std::to_string(plan.sizes.tensor)},
          {"optimize", plan.sequence_parallel ? "memory" : "speed"},
          {"microbatch_size", std::to_string(plan.sizes.microbatch_size)},
          {"sequence_length", std::to_string(config.data.sequence_length)}};
}

std::string profile_text(const Profile& profile) {
  std::vector<TableRow> layers, links;
  for (const auto& layer : profile.layers)
    layers.push_back({layer.name, format_count(static_cast<double>(layer.parameters)),
                      format_duration(layer.forward_seconds), format_duration(layer.backward_seconds),
                      format_duration(layer.backward_input_seconds), format_duration(layer.backward_weight_seconds),
                      format_bytes(static_cast<double>(layer.border_bytes))});
  std::string text = table({"layer", "parameters", "forward", "backward", "input half", "weight half", "border"}, layers);
  for (const auto& link : profile.links)
    links.push_back({link.group, std::to_string(link.ranks), link.operation, format_duration(link.seconds.front()),
                     cat(format_bytes(static_cast<double>(link.bytes.back()) / link.seconds.back()), "/s")});
  if (!links.empty()) text += "\n" + table({"link", "ranks", "operation", "latency", "rate"}, links);
  return cat(text, "\noptimizer ", format_duration(1e6 * profile.optimizer_seconds_per_element),
             " for a million elements\n");
}

}  // namespace

void check_profile(const Config& config) {
  plan_model(config, configured_world_size(config));
}

void profile_job(const Config& config, const std::string& path, RankContext& context) {
  const JobParts parts = make_parts(config, context);
  Profile profile{.valid_for = profile_conditions(config, parts.plan, context), .layers = {}, .links = {}};
  std::optional<Progress> progress;
  if (context.out) progress.emplace(*context.out, context.console, Progress::LoggedSteps{});
  const auto told = [&](const char* what) {
    return [&progress, what](int64_t done, int64_t total) {
      if (progress) progress->update(done, total, what);
    };
  };
  measure_layers(config, parts.plan, parts.model, context, profile, told("timing layers"));
  measure_links(parts.groups, context.device, profile, told("timing links"));
  if (!context.out) return;
  progress->finish();
  const fs::path file = path.empty() ? fs::path(config.output_dir) / kProfileFile : fs::path(path);
  std::error_code ignored;  // writing tells
  if (file.has_parent_path()) fs::create_directories(file.parent_path(), ignored);
  write_profile(profile, file);
  *context.out << profile_text(profile) << "written to " << file.string() << '\n';
}

}  // namespace shardline
