// A job of four ranks, two stages with two replicas, that trains nothing: its steps have the messages and collectives
// of real ones. One rank can be at fault.
#pragma once
#include <functional>
#include <string>

#include "core/comm/communicator.h"

namespace shardline::testing {

inline constexpr int kFaultyRank = 1;
inline constexpr int kFaultyStep = 3;

struct Fault {
  enum class Kind {
    none,
    stops,         // or ends, in at_fault
    skips,         // a collective
    other_size,    // in a collective
    keeps,         // a message, which its communicator never gets
    does_not_send  // a message, which its communicator has received; at_fault must see to it
  };
  Kind kind = Kind::none;
  std::function<void()> at_fault = [] {};  // called on the faulty rank at the moment of its fault
};

// The stage of each rank.
std::vector<int> fault_scenario_stages();

// Runs a few steps on one rank. Collective over the four ranks of the world.
void run_fault_scenario(Communicator& world, const Fault& fault);

}  // namespace shardline::testing
