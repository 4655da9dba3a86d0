// runtime.memory_cap: the number of bytes that a rank's process may hold.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace shardline {

// Parses 3000000, "3000000", "512MiB", "1.5GiB" (KiB, MiB, GiB, TiB); null means 0, no limit. Throws ConfigError("RULE;
// ADVICE") for anything else.
int64_t memory_cap_bytes(const nlohmann::json& value);

}  // namespace shardline
