#include "engine/plan/profile_use.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/device/accelerator.h"
#include "core/device/gpu_facts.h"
#include "core/error.h"
#include "engine/config/rules/optimizer_rules.h"
#include "engine/config/rules/precision_rules.h"
#include "tensor_parallel/products/products.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// The value on the line that begins with `key` in a file of the kernel, without the separator.
std::string value_in(const fs::path& file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key)) return line.substr(std::min(line.size(), line.find_first_not_of(" \t:", key.size())));
  return "";
}

std::string device_name(at::Device device) {
  if (!is_accelerator(device)) return value_in("/proc/cpuinfo", "model name");
  const auto facts = gpu_facts(device.index());  // CUDA's index; the driver lists GPUs in a different order
  return facts ? facts->name : device.str();
}

std::string name_of(const OptimizerOptions& options) {
  switch (options.kind) {
    case OptimizerOptions::Kind::adamw:
      return "adamw";
    case OptimizerOptions::Kind::adam:
      return "adam";
    case OptimizerOptions::Kind::sgd:
      return "sgd";
    case OptimizerOptions::Kind::adafactor:
      return "adafactor";
    case OptimizerOptions::Kind::added:
      return options.added;
  }
  throw InvariantError("unknown optimizer");
}

std::string optimizer_text(const OptimizerOptions& options) {
  std::string text = name_of(options);
  if (options.momentum > 0) text += options.nesterov ? " with Nesterov momentum" : " with momentum";
  if (options.max_gradient_value > 0) text += ", gradients limited by value";
  return text;
}

// How the mesh is spread over hosts: "1" or "2, placement DPT".
std::string hosts_text(const RankContext& context, const Mesh& mesh) {
  const std::set<int> hosts(context.host_of.begin(), context.host_of.end());
  return hosts.size() <= 1 ? "1" : cat(hosts.size(), ", placement ", mesh.placement().letters());
}

}  // namespace

std::map<std::string, std::string> job_conditions(const Config& config, const ModelSpec& spec, Precision precision) {
  return {{"model", cat(spec.family, ": ", spec.variant)},
          {"dtype", describe_types(config, precision)},
          {"optimizer", optimizer_text(optimizer_options(config.training))}};
}

std::map<std::string, std::string> profile_conditions(const Config& config, const Plan& plan,
                                                      const RankContext& context) {
  std::map<std::string, std::string> conditions = {
      {"device", device_name(context.device)},
      {"ranks_per_host", std::to_string(context.local_size)},
      {"hosts", hosts_text(context, plan.layout.mesh())},
      {"threads_per_rank", std::to_string(at::get_num_threads())},
      {"products", products_in_use()},
      {"communicator", context.uses_nccl() ? "nccl" : word_of(resolved_communicator(config))},  // carries tensors
      {"torch", TORCH_VERSION},
      {"shardline", SHARDLINE_VERSION},
      {"optimizer_states", states_on_host(config.smp, is_accelerator(context.device)) ? "host" : "device"}};
  conditions.merge(job_conditions(config, plan.workload.spec, plan.workload.precision()));
  conditions.merge(layout_conditions(plan.workload, plan.layout));
  return conditions;
}

std::string why_not_usable(const Profile& profile, const std::map<std::string, std::string>& conditions,
                           const Plan& plan, const ModelSpec& spec) {
  if (const auto different = mismatch(profile, conditions); !different.empty())
    return "it was measured with " + different;
  for (const auto& layer : spec.layers)
    if (!find_layer(profile, layer)) return cat("it has no layer with the shapes of ", layer.name);
  const auto lacks = [&](const char* group, int ranks) {
    return ranks > 1 && !find_link(profile, group, "all_reduce", ranks);
  };
  if (lacks("tp", plan.layout.tensor) || lacks("rdp", plan.layout.replicas) || lacks("pp", plan.layout.pipeline))
    return cat("its links are not those of D=", plan.layout.replicas, " P=", plan.layout.pipeline,
               " T=", plan.layout.tensor);
  return "";
}

FoundProfile find_profile(const std::string& path, const std::map<std::string, std::string>& conditions,
                          const Plan& plan, const ModelSpec& spec) {
  if (!fs::exists(path)) return {nullptr, cat("there is no ", path, "; shardline profile creates it")};
  auto profile = std::make_shared<const Profile>(read_profile(path));
  if (const auto why_not = why_not_usable(*profile, conditions, plan, spec); !why_not.empty())
    return {nullptr, cat(path, " cannot be used here: ", why_not)};
  return {profile, ""};
}

}  // namespace shardline
