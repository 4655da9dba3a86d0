// A communicator that breaks chosen operations of another one, and of all groups split from it.
#pragma once
#include <functional>
#include <string_view>

#include "core/comm/communicator.h"

namespace shardline::parity {

struct Call {
  std::string_view group, what;  // "tp", "reduce rows"
};

// What happens to a call; `leave` for all other calls. All ranks of a group must damage the same calls.
enum class Damage {
  leave,
  drop,     // nothing is transferred: after a gather, every rank sees only its own part
  repeat,   // a reduction is done twice
  average,  // a sum becomes a mean
};
using DamageRule = std::function<Damage(const Call&)>;

CommunicatorPtr damaged(const CommunicatorPtr& world, const DamageRule& rule);

}  // namespace shardline::parity
