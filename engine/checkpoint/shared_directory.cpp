#include "engine/checkpoint/shared_directory.h"

#include <filesystem>
#include <map>
#include <thread>

#include "core/comm/communicator_base.h"
#include "core/error.h"
#include "core/files/disk_file.h"
#include "core/hex.h"
#include "engine/checkpoint/checkpoint_directory.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

}  // namespace

std::string reason_against_writing(const std::string& file, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    try {
      DiskFile::open(file);
      return "";
    } catch (const RunError& error) {
      if (std::chrono::steady_clock::now() >= deadline) return error.what();
    }
    std::this_thread::sleep_for(std::min(patience, std::chrono::milliseconds(100)));
  }
}

void require_shared_directory(const std::string& directory, Communicator& world, bool must_write,
                              std::chrono::milliseconds patience) {
  const bool first = world.rank() == 0;
  // A random name has not been looked up before, so no file system has cached that it does not exist.
  const std::string name =
      broadcast_string(world, first ? cat(kSharedPrefix, random_digits(), kUnfinishedSuffix) : "", 0);
  const std::string file = fs::path(directory) / name;
  if (first) DiskFile::create(file);
  world.barrier({.what = "a file to look for"});
  const auto reasons = gather_strings(world, must_write ? reason_against_writing(file, patience) : "");
  std::error_code ignored;
  if (first) fs::remove(file, ignored);
  const auto hosts = gather_strings(world, host_name());
  std::map<std::string, std::string> ranks_of_host, reason_of_host;
  for (size_t rank = 0; rank < reasons.size(); ++rank) {
    if (reasons[rank].empty()) continue;
    auto& ranks = ranks_of_host[hosts[rank]];
    ranks += cat(ranks.empty() ? "" : ", ", rank);
    reason_of_host[hosts[rank]] = reasons[rank];
  }
  if (ranks_of_host.empty()) return;
  std::string failures;
  for (const auto& [host, ranks] : ranks_of_host)
    failures += cat("\n  host ", host, " (rank ", ranks, "): ", reason_of_host[host]);
  throw AllRanks<RunError>(
      cat("/output_dir: ", directory, " is not the same directory for all ranks that write the model. Rank 0 on ",
          hosts.front(), " created a file there that others cannot open:", failures,
          "\nuse a directory on a file system that all these hosts share, writable on each of them"));
}

}  // namespace shardline
