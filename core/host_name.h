// The name of this host in messages and records.
#pragma once
#include <string>

namespace shardline {

std::string host_name();

}  // namespace shardline
