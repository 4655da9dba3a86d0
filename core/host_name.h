// The name of this host, as messages and records have it.
#pragma once
#include <string>

namespace shardline {

std::string host_name();

}  // namespace shardline
