// One rank of a simulated world: every operation succeeds immediately and transfers nothing. For dry runs of any size.
#pragma once
#include <functional>

#include "core/comm/communicator.h"

namespace shardline {

// The color that `rank` (of the world) would pass when group `name` is split off.
using FakeColors = std::function<int(const std::string& name, int rank)>;

// Without colors, split() throws ConfigError, because there are no other ranks to ask.
CommunicatorPtr make_fake_world(int rank, int size, FakeColors colors = nullptr);

}  // namespace shardline
