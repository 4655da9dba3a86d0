// Checks that ranks that write files together share one directory, not directories of the same name on each host.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "core/comm/communicator.h"

namespace shardline {

// Collective over `world`. Rank 0 has created `directory` and puts a file there; every rank that `asks` looks for it,
// as below. Returns by rank what keeps it from writing there; empty: nothing, or it does not ask.
std::vector<std::string> reasons_against_sharing(const std::string& directory, Communicator& world, bool asks,
                                                 std::chrono::milliseconds patience = std::chrono::seconds(10));

// Collective over `world`. Rank 0 has created `directory` and puts a file there; every rank with `must_write` looks for
// it and opens it for writing. It looks for up to `patience`, because network file systems show new files late. Throws
// RunError on all ranks unless each of these ranks can open the file; the error names the hosts, the ranks and what
// they found.
void require_shared_directory(const std::string& directory, Communicator& world, bool must_write,
                              std::chrono::milliseconds patience = std::chrono::seconds(10));

}  // namespace shardline
