// Checks that ranks that write files together share one directory, not directories of the same name on each host.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "core/comm/communicator.h"

namespace shardline {

// Opens a file for writing, trying for up to `patience`, because network file systems show new files late. Returns why
// it cannot; empty if it can.
std::string reason_against_writing(const std::string& file, std::chrono::milliseconds patience);

// Collective over `world`. Rank 0 has created `directory` and puts a file there; every rank with `must_write` looks for
// it and opens it for writing. It looks for up to `patience`, because network file systems show new files late. Throws
// RunError on all ranks unless each of these ranks can open the file; the error names the hosts, the ranks and what
// they found.
void require_shared_directory(const std::string& directory, Communicator& world, bool must_write,
                              std::chrono::milliseconds patience = std::chrono::seconds(10));

}  // namespace shardline
