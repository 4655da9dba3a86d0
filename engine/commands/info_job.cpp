// What this host has and what a run would use. The JSON object is made first; the text shows the same values.
#include <c10/core/DeviceGuard.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/comm/communicator_base.h"
#include "core/comm/mpi_communicator.h"
#include "core/comm/nccl/nccl_api.h"
#include "core/device/accelerator.h"
#include "core/error.h"
#include "engine/commands/job.h"
#include "engine/observe/format.h"
#include "engine/run/local_cluster.h"
#include "engine/run/rank_devices.h"
#include "tensor_parallel/products/products.h"
#include "tensor_parallel/products/products_onednn.h"

namespace shardline {
namespace {

using nlohmann::json;

json or_null(const std::string& text) {
  return text.empty() ? json() : json(text);
}

json cuda_json() {
  const auto software = gpu_software();
  if (!software) return nullptr;
  int nccl = 0;
  nccl_api().get_version(&nccl);
  json code = json::array(), ptx = json::array();
  for (const int capability : software->code) code.push_back(capability_text(capability));
  for (const int capability : software->ptx) ptx.push_back(capability_text(capability));
  return {{"runtime", cuda_text(software->runtime)},
          {"driver", software->driver == 0 ? json() : json(cuda_text(software->driver))},
          {"nccl", nccl_version_text(nccl)},
          {"capabilities", code},
          {"ptx", ptx}};
}

json versions_json() {
  const std::string onednn = onednn_library().matmul ? onednn_library().name : "";
  return {{"shardline", SHARDLINE_VERSION},
          {"libtorch", TORCH_VERSION},
          {"onednn", or_null(onednn.substr(onednn.rfind(' ') + 1))},
          {"mpi", or_null(mpi_library())},
          {"cuda", cuda_json()}};
}

json host_json() {
  return {{"name", host_name()},
          {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
          {"usable_cores", usable_cores()},
          {"memory_bytes", static_cast<int64_t>(host_memory_size())},
          {"available_bytes", static_cast<int64_t>(available_host_memory())},
          {"products", products_in_use()},
          {"native_bf16", multiplies_natively(at::kBFloat16)}};
}

json gpu_json(int index) {
  const at::Device device = accelerator(index);
  const auto facts = gpu_facts(index);
  json gpu = {{"index", index},
              {"name", facts ? json(facts->name) : json()},
              {"capability", facts ? json(capability_text(facts->capability)) : json()},
              {"uuid", facts ? json(facts->uuid) : json()},
              {"memory_bytes", nullptr},
              {"free_bytes", nullptr},
              {"problem", nullptr}};
  try {
    check_device({}, device);
    check_device_memory(device);
  } catch (const Error& error) {
    gpu["problem"] = error.what();
  }
  try {
    const c10::DeviceGuard on_device(device);
    gpu["memory_bytes"] = device_memory_size(device);
    gpu["free_bytes"] = free_device_memory(device);
  } catch (const c10::Error&) {  // reported as the problem above
  }
  return gpu;
}

const char* text_of(GpuLink link) {
  return link == GpuLink::nvlink ? "NVLink" : link == GpuLink::pcie ? "PCIe" : "host memory";
}

json links_json() {
  json links = json::array();
  for (int from = 0; from < gpu_count(); ++from)
    for (int to = from + 1; to < gpu_count(); ++to)
      links.push_back({{"from", from}, {"to", to}, {"link", text_of(gpu_link(from, to))}});
  return links;
}

json choices_json(const Config& config) {
  json use = {{"ranks", json::array()}, {"host_values", nullptr}, {"tensors", nullptr}, {"problem", nullptr}};
  try {
    const HostChoices choices = choices_here(config);
    for (const auto& rank : choices.ranks)
      use["ranks"].push_back({{"local_rank", rank.local_rank}, {"device", rank.device.str()}, {"why", rank.why}});
    use["host_values"] = {{"communicator", choices.values}, {"why", choices.values_why}};
    use["tensors"] = {{"communicator", choices.tensors}, {"why", choices.tensors_why}};
    check_host(config);
  } catch (const Error& error) {
    use["problem"] = error.what();
  }
  return use;
}

json info_json(const std::optional<Config>& config) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  json gpus = json::array();
  for (int index = 0; index < gpu_count(); ++index) gpus.push_back(gpu_json(index));
  json info = {{"versions", versions_json()},
               {"host", host_json()},
               {"cuda_visible_devices", visible ? json(visible) : json()},
               {"gpus", gpus},
               {"no_gpu", gpus.empty() ? json(no_gpu_reason()) : json()},
               {"links", links_json()}};
  if (config) info["use"] = choices_json(*config);
  return info;
}

std::string word(const json& value, const char* otherwise) {
  return value.is_string() ? value.get<std::string>() : otherwise;
}

std::string bytes_text(const json& bytes) {
  return bytes.is_null() ? "unknown" : format_bytes(bytes);
}

std::string versions_text(const json& versions) {
  std::vector<TableRow> rows = {{"shardline", versions["shardline"]},
                                {"LibTorch", versions["libtorch"]},
                                {"oneDNN", word(versions["onednn"], "no: ATen multiplies on CPUs")},
                                {"MPI", word(versions["mpi"], "no: ranks are threads of one process")}};
  const json& cuda = versions["cuda"];
  if (cuda.is_null()) {
    rows.push_back({"CUDA", "no: this build is for CPUs"});
    return table({}, rows);
  }
  std::string kernels;
  for (const auto& capability : cuda["capabilities"]) kernels += cat(", ", capability.get<std::string>());
  for (const auto& capability : cuda["ptx"]) kernels += cat(", PTX for ", capability.get<std::string>(), " and newer");
  rows.push_back({"CUDA", cat(word(cuda["runtime"], ""), ", kernels for compute capability ", kernels.substr(2))});
  rows.push_back({"driver", cuda["driver"].is_null() ? "none" : cat("supports CUDA ", word(cuda["driver"], ""))});
  rows.push_back({"NCCL", cuda["nccl"]});
  return table({}, rows);
}

std::string host_text(const json& host) {
  return table(
      {},
      {{"host", host["name"]},
       {"cores", cat(host["cores"], ", of which this process may use ", host["usable_cores"])},
       {"memory", cat(format_bytes(host["memory_bytes"]), ", ", format_bytes(host["available_bytes"]), " available")},
       {"products", cat(host["products"].get<std::string>(),
                        host["native_bf16"] == true ? ", bf16 natively" : ", bf16 widened to fp32")}});
}

std::string gpus_text(const json& info) {
  const json& visible = info["cuda_visible_devices"];
  const std::string hidden = visible.is_null() ? "" : cat("CUDA_VISIBLE_DEVICES is \"", word(visible, ""), "\"\n");
  if (info["gpus"].empty()) return cat("no GPU: ", word(info["no_gpu"], ""), '\n', hidden);
  std::vector<TableRow> rows, links;
  std::string problems;
  for (const auto& gpu : info["gpus"]) {
    rows.push_back({cat(gpu["index"]), word(gpu["name"], "unknown"), word(gpu["capability"], ""),
                    bytes_text(gpu["memory_bytes"]), bytes_text(gpu["free_bytes"])});
    if (gpu["problem"].is_string()) problems += cat("problem: ", word(gpu["problem"], ""), '\n');
  }
  for (const auto& link : info["links"])
    links.push_back({cat(link["from"], " - ", link["to"]), word(link["link"], "")});
  return cat(table({"GPU", "name", "capability", "memory", "free"}, rows), problems, hidden,
             links.empty() ? "" : cat('\n', table({"GPUs", "link"}, links)));
}

std::string use_text(const json& use) {
  const std::string problem = use["problem"].is_string() ? cat("problem: ", word(use["problem"], ""), '\n') : "";
  if (use["ranks"].empty()) return problem;
  std::vector<TableRow> rows;
  for (const auto& rank : use["ranks"])
    rows.push_back({cat(rank["local_rank"]), word(rank["device"], ""), word(rank["why"], "")});
  const auto carried = [&](const char* what) {
    return cat(word(use[what]["communicator"], ""), ": ", word(use[what]["why"], ""));
  };
  return cat(table({"local rank", "device", "why"}, rows), '\n',
             table({}, {{"tensors", carried("tensors")}, {"host values", carried("host_values")}}), problem);
}

}  // namespace

std::string info_text(const std::optional<Config>& config, bool as_json) {
  const json info = info_json(config);
  if (as_json) return info.dump(2) + '\n';
  return cat(versions_text(info["versions"]), '\n', host_text(info["host"]), '\n', gpus_text(info),
             config ? cat('\n', use_text(info["use"])) : "");
}

}  // namespace shardline
