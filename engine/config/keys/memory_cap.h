// runtime.memory_cap: the bytes that a rank's process may hold.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace shardline {

// 3000000, "3000000", "512MiB", "1.5GiB" (KiB, MiB, GiB, TiB); null is 0: none. Throws ConfigError("rule; advice") for
// anything else.
int64_t memory_cap_bytes(const nlohmann::json& value);

}  // namespace shardline
