// The machines that job definitions name.
#pragma once
#include <optional>
#include <string>

namespace shardline {

// The GPUs of an instance type such as "ml.p3.16xlarge" ("ml." may be missing); 0: it has none. Unset: not known.
std::optional<int> gpus_of_instance(const std::string& type);

}  // namespace shardline
