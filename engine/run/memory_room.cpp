#include "engine/run/memory_room.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <map>
#include <new>
#include <nlohmann/json.hpp>

#include "core/comm/communicator_base.h"
#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/memory/caching_allocator.h"
#include "engine/observe/format.h"
#include "engine/run/launcher_news.h"
#include "engine/run/local_cluster.h"
#include "engine/run/rank_devices.h"

namespace shardline {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MemoryRoom, id, text, free_bytes, bytes)

namespace {

// What makes each class of memory smaller, at the same global batch.
struct Lever {
  double MemoryBytes::*bytes;
  const char* text;
};
constexpr const char* kSmallerMicrobatches = "smaller microbatches (a larger smp_options.microbatches)";
constexpr const char* kMoreRanks = "more pipeline stages or tensor-parallel ranks";
constexpr const char* kEffect = "; `shardline plan CONFIG.json --cluster local` shows the effect";
constexpr const char* kOffloadedToHost =
    ", for optimizer states and activations\n  to use less: smp_options.offload_optimizer_states or "
    "offload_activations "
    "false, or fewer ranks on a host";
constexpr Lever kLevers[] = {
    {&MemoryBytes::activations, kSmallerMicrobatches},
    {&MemoryBytes::activations, "smp_options.activation_checkpointing \"each\""},
    {&MemoryBytes::activations, "smp_options.offload_activations with offload_scope \"all\""},
    {&MemoryBytes::activations, "training.bf16 (in fp32 runs)"},
    {&MemoryBytes::workspace, kSmallerMicrobatches},
    {&MemoryBytes::communication, kSmallerMicrobatches},
    {&MemoryBytes::optimizer, "smp_options.shard_optimizer_state (with replicas)"},
    {&MemoryBytes::optimizer, "smp_options.offload_optimizer_states (GPUs)"},
    {&MemoryBytes::gradients, "smp_options.shard_gradients (with replicas)"},
    {&MemoryBytes::weights, "smp_options.sharded_data_parallel_degree (with replicas)"},
    {&MemoryBytes::weights, kMoreRanks},
    {&MemoryBytes::gradients, kMoreRanks},
    {&MemoryBytes::optimizer, kMoreRanks},
    {&MemoryBytes::activations, kMoreRanks},
};

std::vector<PlannedClass> largest_first(const MemoryBytes& planned) {
  std::vector<PlannedClass> classes(std::begin(kPlannedClasses), std::end(kPlannedClasses));
  std::stable_sort(classes.begin(), classes.end(),
                   [&](const auto& a, const auto& b) { return planned.*a.bytes > planned.*b.bytes; });
  std::erase_if(classes, [&](const PlannedClass& one) { return planned.*one.bytes == 0; });
  return classes;
}

// "75.0 GiB: activations 30.2 GiB, optimizer 24.0 GiB, ..."
std::string planned_text(const MemoryBytes& planned) {
  std::string text = format_bytes(planned.total());
  for (const auto& [name, bytes] : largest_first(planned))
    text += cat(text.find(':') == std::string::npos ? ": " : ", ", name, ' ', format_bytes(planned.*bytes));
  return text;
}

// Advice for the largest classes, which together are more than half of the planned bytes.
std::string advice(const MemoryBytes& planned) {
  std::vector<std::string> texts;
  double sum = 0;
  for (const auto& [name, bytes] : largest_first(planned)) {
    if (sum > planned.total() / 2) break;
    sum += planned.*bytes;
    for (const auto& lever : kLevers)
      if (lever.bytes == bytes && std::find(texts.begin(), texts.end(), lever.text) == texts.end())
        texts.emplace_back(lever.text);
  }
  std::string list;
  for (const auto& text : texts) list += cat(list.empty() ? "" : ", ", text);
  return list;
}

// Describes the peak, because the rank has freed its memory by now.
std::string in_use_text(at::Device device) {
  if (!is_accelerator(device)) return cat(format_bytes(memory_totals().peak_live), " by tensors of this process");
  const DeviceMemory memory = device_memory(device);
  const double free = free_device_memory(device), all = device_memory_size(device);
  const double others = std::max(0.0, all - free - memory.reserved);
  return cat(format_bytes(memory.peak_allocated), " by tensors of this process, ", format_bytes(memory.peak_reserved),
             " including memory kept for reuse; ", format_bytes(others),
             " by other processes, the driver and libraries; the device has ", format_bytes(all));
}

[[noreturn]] void end_out_of_memory(const std::string& text) {
  tell_launcher(News::out_of_memory);
  throw OutOfMemory(text);
}

[[noreturn]] void fail(const MemoryBytes& planned, at::Device device, const std::string& reason) {
  end_out_of_memory(cat("out of memory on rank ", current_rank(), ", ", device_text(device), ": ", reason,
                        "\n  in use at the peak: ", in_use_text(device), "\n  planned for this rank: ",
                        planned_text(planned), "\n  to use less: ", advice(planned), kEffect));
}

// The host memory of a rank with an accelerator holds offloaded tensors, token ids and files.
[[noreturn]] void fail_on_host(const MemoryBytes& planned, at::Device device, const std::string& reason) {
  if (!is_accelerator(device)) fail(planned, device, reason);
  end_out_of_memory(cat("out of memory on rank ", current_rank(), ", ", device_text(at::kCPU), ": ", reason,
                        "\n  planned there for this rank: ", format_bytes(planned.host), kOffloadedToHost));
}

// The need of the ranks that share one memory.
struct Need {
  std::vector<size_t> ranks;
  double bytes = 0, free_bytes = 0;
};

// The need that exceeds its free memory by the most, or comes closest to it.
template <class Planned, class BytesOf>
Need greatest_need(const std::vector<MemoryRoom>& rooms, const std::vector<Planned>& planned, const BytesOf& bytes_of) {
  std::map<std::string, Need> needs;
  for (size_t rank = 0; rank < rooms.size(); ++rank) {
    Need& need = needs[rooms[rank].id];
    need.free_bytes = need.ranks.empty() ? rooms[rank].free_bytes : std::min(need.free_bytes, rooms[rank].free_bytes);
    need.bytes += bytes_of(planned[rank]);
    need.ranks.push_back(rank);
  }
  return std::max_element(needs.begin(), needs.end(),
                          [](const auto& a, const auto& b) {
                            return a.second.bytes - a.second.free_bytes < b.second.bytes - b.second.free_bytes;
                          })
      ->second;
}

// "GPU 1 of host a has 10 B of 20 B free, but the plan needs 12 B there for 2 ranks that share it"
std::string text_of(const Need& need, const MemoryRoom& room) {
  return cat(room.text, " has ", format_bytes(need.free_bytes), " of ", format_bytes(room.bytes),
             " free, but the plan needs ", format_bytes(need.bytes), " there",
             need.ranks.size() > 1 ? cat(" for ", need.ranks.size(), " ranks that share it")
                                   : cat(" for rank ", need.ranks.front()));
}

// One entry per rank.
std::vector<MemoryRoom> gathered(Communicator& world, const MemoryRoom& mine) {
  std::vector<MemoryRoom> rooms;
  for (const auto& text : gather_strings(world, nlohmann::json(mine).dump()))
    rooms.push_back(nlohmann::json::parse(text).get<MemoryRoom>());
  return rooms;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// CUDA and its libraries allocate memory outside of torch's allocator, and report a lack of it in their own words.
bool is_lack_of_memory(const std::string& text) {
  return text.find("CUDA error: out of memory") != std::string::npos ||
         text.find("_STATUS_ALLOC_FAILED") != std::string::npos;
}

}  // namespace

std::vector<MemoryRoom> gather_rooms(Communicator& world, at::Device device) {
  const auto ids = device_names(world, device);
  const double free_bytes = free_device_memory(device), bytes = device_memory_size(device);
  return gathered(world,
                  {.id = ids[world.rank()], .text = device_text(device), .free_bytes = free_bytes, .bytes = bytes});
}

std::vector<MemoryRoom> gather_host_rooms(Communicator& world, const std::vector<int>& host_of) {
  return gathered(world, {.id = std::to_string(host_of.empty() ? 0 : host_of[world.rank()]),
                          .text = device_text(at::kCPU),
                          .free_bytes = available_host_memory(),
                          .bytes = host_memory_size()});
}

void check_rooms(const std::vector<MemoryRoom>& rooms, const std::vector<MemoryBytes>& planned) {
  const Need need = greatest_need(rooms, planned, [](const MemoryBytes& bytes) { return bytes.total(); });
  if (need.bytes <= need.free_bytes) return;
  const size_t rank = need.ranks.front();
  const bool fits_alone = need.bytes <= rooms[rank].bytes;
  end_out_of_memory(
      cat(text_of(need, rooms[rank]), "\n  planned for rank ", rank, ": ", planned_text(planned[rank]),
          fits_alone
              ? "\n  other processes may hold memory there: nvidia-smi lists them; end them, or choose other GPUs with "
                "CUDA_VISIBLE_DEVICES"
              : "",
          "\n  to use less: ", advice(planned[rank]), kEffect));
}

void check_host_rooms(const std::vector<MemoryRoom>& hosts, const std::vector<MemoryBytes>& planned) {
  const Need need = greatest_need(hosts, planned, [](const MemoryBytes& bytes) { return bytes.host; });
  if (need.bytes <= need.free_bytes) return;
  end_out_of_memory(cat(text_of(need, hosts[need.ranks.front()]), kOffloadedToHost));
}

void check_snapshot_room(const std::vector<MemoryRoom>& hosts, const std::vector<double>& bytes) {
  const Need need = greatest_need(hosts, bytes, [](double one) { return one; });
  if (need.bytes <= need.free_bytes) return;
  throw AllRanks<RunError>(cat(
      "checkpoints are copied into memory before they are written; on ", hosts[need.ranks.front()].text, " this needs ",
      format_bytes(need.bytes), " for ", need.ranks.size(), " rank(s), but ", format_bytes(need.free_bytes),
      " is available\n  to use less: training.save_only_model true, fewer ranks on this host and more "
      "on others, or training.save_strategy \"no\" for a run that saves only its final model"));
}

std::string sharing_note(const std::vector<MemoryRoom>& rooms) {
  std::map<std::string, size_t> ranks_of;
  for (const auto& room : rooms) ++ranks_of[room.id];
  if (ranks_of.size() == rooms.size()) return "";
  const auto shared = std::find_if(rooms.begin(), rooms.end(), [&](const auto& room) { return ranks_of[room.id] > 1; });
  return cat(rooms.size(), " ranks share ", ranks_of.size(), ranks_of.size() == 1 ? " device" : " devices", ": ",
             ranks_of[shared->id], " of them are on ", shared->text,
             "; they take turns there and communicate through host memory. For full speed, start one rank per GPU on "
             "each host");
}

void explain_lack_of_memory(const std::function<MemoryBytes()>& planned, at::Device device,
                            const std::function<void()>& work) {
  try {
    work();
  } catch (const c10::OutOfMemoryError& error) {
    fail(planned(), device, first_line(error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (!is_accelerator(device) || !is_lack_of_memory(text)) throw;
    fail(planned(), device, first_line(text));
  } catch (const HostMemoryError& error) {
    fail_on_host(planned(), device, error.what());
  } catch (const std::bad_alloc&) {
    fail_on_host(planned(), device, "the system has no memory left");
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& error) {  // from one of our kernels, which CUDA may load at its first launch
    if (!is_accelerator(device) || !std::string(error.what()).ends_with(": out of memory")) throw;
    fail(planned(), device, error.what());
  }
}

}  // namespace shardline
