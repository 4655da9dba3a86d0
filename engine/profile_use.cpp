#include "engine/profile_use.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/error.h"
#include "engine/config/optimizer_rules.h"
#include "engine/config/precision_rules.h"
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
  return index < gpus.size()
             ? value_in(*std::next(gpus.begin(), static_cast<std::ptrdiff_t>(index)) / "information", "Model")
             : device.str();
}

// What changes a layer's time but not its shapes: "activation_function=gelu_new, attn_pdrop=0.1, ..."
std::string model_switches(const nlohmann::json& hf_config) {
  std::string text = hf_config.value("model_type", "");
  for (const auto& [key, value] : hf_config.items())
    if (key.find("drop") != std::string::npos || key.find("activation") != std::string::npos)
      text += cat(", ", key, "=", value.dump());
  return text;
}

}  // namespace

std::map<std::string, std::string> profile_conditions(const Config& config, const Plan& plan, const ModelSource& model,
                                                      const RankContext& context) {
  return {{"device", device_name(context.device)},
          {"ranks_per_host", std::to_string(context.local_size)},
          {"threads_per_rank", std::to_string(at::get_num_threads())},
          {"products", products_in_use()},
          {"communicator", resolved_communicator(config)},
          {"torch", TORCH_VERSION},
          {"shardline", SHARDLINE_VERSION},
          {"dtype", describe_numbers(config)},
          {"model", model_switches(model.hf_config)},
          {"tensor_parallel_degree", std::to_string(plan.sizes.tensor)},
          {"optimizer_states", states_on_host(config.smp, !context.device.is_cpu()) ? "host" : "device"},
          {"optimize", plan.sequence_parallel ? "memory" : "speed"},
          {"microbatch_size", std::to_string(plan.sizes.microbatch_size)},
          {"sequence_length", std::to_string(config.data.sequence_length)}};
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
  if (lacks("tp", plan.mesh.t()) || lacks("rdp", plan.mesh.d()) || lacks("pp", plan.mesh.p()))
    return cat("its links are not those of D=", plan.mesh.d(), " P=", plan.mesh.p(), " T=", plan.mesh.t());
  return "";
}

FoundProfile find_profile(const std::string& path, const std::map<std::string, std::string>& conditions,
                          const Plan& plan, const ModelSpec& spec) {
  if (!fs::exists(path)) return {nullptr, cat("there is no ", path, "; shardline profile makes it")};
  auto profile = std::make_shared<const Profile>(read_profile(path));
  if (const auto why_not = why_not_usable(*profile, conditions, plan, spec); !why_not.empty())
    return {nullptr, cat(path, " is of no use here: ", why_not)};
  return {profile, ""};
}

}  // namespace shardline
