#include "engine/checkpoint/stores.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <thread>

#include "core/comm/communicator_base.h"
#include "core/error.h"
#include "core/files/disk_file.h"
#include "core/hex.h"
#include "engine/checkpoint/checkpoint_directory.h"
#include "engine/checkpoint/shared_directory.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Whether the file system belongs to this machine's kernel alone: such a file system shows a file at once or never.
bool is_local(const std::string& directory) {
  constexpr std::array<long, 6> kLocal = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC,       BTRFS_SUPER_MAGIC,
                                          TMPFS_MAGIC,      OVERLAYFS_SUPER_MAGIC, F2FS_SUPER_MAGIC};
  struct statfs status = {};
  return ::statfs(directory.c_str(), &status) == 0 && std::ranges::count(kLocal, status.f_type) > 0;
}

// For each rank, the first rank that sees a directory of the same name on the same host.
std::vector<int> first_on_host(const std::string& directory, Communicator& world) {
  std::map<std::string, int> firsts;
  std::vector<int> first_of;
  for (const auto& place : gather_strings(world, host_name() + '\n' + directory))
    first_of.push_back(firsts.emplace(place, first_of.size()).first->second);
  return first_of;
}

std::string failure_of_making(const std::string& directory, const std::string& file) {
  try {
    std::error_code ignored;
    fs::create_directories(directory, ignored);
    DiskFile::create(file);
    return "";
  } catch (const RunError& error) {
    return error.what();
  }
}

}  // namespace

std::vector<std::vector<int>> ranks_by_host(const std::vector<int>& ranks, const std::vector<std::string>& hosts) {
  std::vector<std::vector<int>> sets;
  std::map<std::string, size_t> set_of;
  for (const int rank : ranks) {
    const auto [place, is_new] = set_of.emplace(hosts[rank], sets.size());
    if (is_new) sets.emplace_back();
    sets[place->second].push_back(rank);
  }
  return sets;
}

std::vector<size_t> Stores::writable() const {
  std::vector<size_t> stores;
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].obstacle.empty()) stores.push_back(i);
  return stores;
}

Stores find_stores(const std::string& directory, Communicator& world, std::chrono::milliseconds patience) {
  const int rank = world.rank();
  const auto first_of = first_on_host(directory, world);
  const std::string digits = broadcast_string(world, rank == 0 ? random_digits() : "", 0);
  const auto file_of = [&](int maker) {
    return fs::path(directory) / cat(kSharedPrefix, digits, '-', maker, kUnfinishedSuffix);
  };
  const bool makes = first_of[rank] == rank;
  const auto failures = gather_strings(world, makes ? failure_of_making(directory, file_of(rank)) : "");
  std::vector<int> makers;
  for (int maker = 0; maker < world.size(); ++maker)
    if (first_of[maker] == maker && failures[maker].empty()) makers.push_back(maker);

  // Finds the first maker whose file this rank sees. The file of its own host is visible immediately.
  std::string reason;
  const auto look = [&] {
    for (const int maker : makers) {
      reason = reason_against_writing(file_of(maker), std::chrono::milliseconds(0));
      if (reason.empty()) return maker;
    }
    return -1;
  };
  int seen = look();
  const auto deadline = Clock::now() + (is_local(directory) ? std::chrono::milliseconds(0) : patience);
  while (!makers.empty() && seen != makers.front() && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    seen = look();
  }
  if (!failures[first_of[rank]].empty()) reason = failures[first_of[rank]];

  const auto hosts = gather_strings(world, host_name());
  const auto on_network = gather_strings(world, is_local(directory) ? "" : "yes");
  const auto rows = gather_strings(world, seen >= 0 ? cat(seen) : "!" + reason);
  std::error_code ignored;
  const auto is_visible = [&](int maker) { return fs::exists(file_of(maker), ignored); };
  const auto sees_some = gather_strings(world, std::ranges::any_of(makers, is_visible) ? "yes" : "");
  if (makes) fs::remove(file_of(rank), ignored);
  Stores stores;
  std::map<std::pair<bool, int>, size_t> store_of;  // by whether it can be written to, and its maker
  for (int other = 0; other < world.size(); ++other) {
    const bool writes = rows[other].front() != '!';
    int maker = writes ? std::stoi(rows[other]) : first_of[other];
    while (writes && rows[maker] != cat(maker) && rows[maker].front() != '!') maker = std::stoi(rows[maker]);
    const auto [place, is_new] = store_of.emplace(std::pair(writes, maker), stores.all.size());
    if (is_new) stores.all.push_back({{}, hosts[other], writes ? "" : rows[other].substr(1), !writes});
    Store& store = stores.all[place->second];
    store.ranks.push_back(other);
    store.sees_other = store.sees_other && !sees_some[other].empty();
    if (other == rank) stores.mine = place->second;
  }
  for (auto& store : stores.all) {
    const bool is_remote = std::ranges::any_of(store.ranks, [&](int other) { return !on_network[other].empty(); });
    if (is_remote)
      store.writers = ranks_by_host(store.ranks, hosts);
    else
      store.writers = {store.ranks};
  }
  return stores;
}

void require_checkpoints_for_all(const Stores& stores, const std::string& directory) {
  std::string lines;
  for (const auto& store : stores.all)
    if (!store.obstacle.empty() && !store.sees_other) lines += cat("\n  host ", store.host, ": ", store.obstacle);
  if (!lines.empty())
    throw AllRanks<RunError>(cat("no run could continue from the checkpoints, because these hosts cannot write to ",
                                 directory,
                                 "; make it writable there, or set training.save_strategy to \"no\":", lines));
}

}  // namespace shardline
