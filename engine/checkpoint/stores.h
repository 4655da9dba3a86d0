// Which ranks share the directory of checkpoints: each host may have its own directory of that name.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "core/comm/communicator.h"

namespace shardline {

// A directory and the ranks that see it.
struct Store {
  std::vector<int> ranks;   // ascending; the first one leads: it makes, renames and removes what is in the directory
  std::string host;         // the leader's
  std::string obstacle;     // why the ranks cannot write there; empty: they can
  bool sees_other = false;  // if there is an obstacle: whether they see what the ranks of another store write
  // Sets of ranks; each file is written by the ranks of one set. If several hosts share a network file system, where
  // hosts that write to the same file wait for each other, a set has the ranks of one host; otherwise, it has all
  // ranks.
  std::vector<std::vector<int>> writers = {};
};

// Equal on all ranks, except for `mine`.
struct Stores {
  std::vector<Store> all;  // in the order of their leaders; each rank is in one of them
  size_t mine = 0;         // the index of this rank's store

  bool leads(int rank) const { return all[mine].ranks.front() == rank; }
  // The numbers of the stores that can be written to.
  std::vector<size_t> writable() const;
};

// Divides ranks, which are ascending, into a set for each of their hosts. hosts: names by rank of the world.
std::vector<std::vector<int>> ranks_by_host(const std::vector<int>& ranks, const std::vector<std::string>& hosts);

// Collective over `world`. Creates `directory`, whose name may differ between ranks. One rank of each host puts a file
// there, and every rank looks for these files and opens them for writing: for up to `patience` on a network file
// system, because those show new files late.
Stores find_stores(const std::string& directory, Communicator& world,
                   std::chrono::milliseconds patience = std::chrono::seconds(10));

// Throws RunError, the same on all ranks, if ranks can neither write in the directory nor see what others write there:
// no run could continue from checkpoints in it.
void require_checkpoints_for_all(const Stores& stores, const std::string& directory);

}  // namespace shardline
