// Ranks that write files together need one directory, not one of the same name on each host.
#pragma once
#include <chrono>
#include <string>

#include "core/comm/communicator.h"

namespace shardline {

// Collective over `world`. Rank 0 has made `directory` and puts a file there; every rank with `must_write` looks for
// it, for as long as `patience` since network file systems show new files late, and opens it for writing. RunError on
// all ranks unless each of these can: names the hosts, the ranks and what they found.
void require_shared_directory(const std::string& directory, Communicator& world, bool must_write,
                              std::chrono::milliseconds patience = std::chrono::seconds(10));

}  // namespace shardline
