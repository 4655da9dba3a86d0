// Calls whose results have at each place what follows from this place of their arguments alone.
#pragma once
#include <string>

namespace shardline {

bool is_elementwise(const std::string& call);  // "aten::add"

}  // namespace shardline
