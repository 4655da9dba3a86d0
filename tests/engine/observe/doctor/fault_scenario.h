// A job of four ranks (two stages with two replicas) that trains nothing: its steps make the messages and collectives
// of real steps. One rank can be at fault.
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
    stops,         // at_fault stops or ends the rank
    skips,         // skips a collective
    other_size,    // calls a collective with another size
    keeps,         // never passes a message to its communicator
    does_not_send  // passes a message to its communicator; at_fault must keep it from being sent
  };
  Kind kind = Kind::none;
  std::function<void()> at_fault = [] {};  // called on the faulty rank at the moment of its fault
};

// The stage of each rank.
std::vector<int> fault_scenario_stages();

// Runs a few steps on one rank. Collective over the four ranks of the world.
void run_fault_scenario(Communicator& world, const Fault& fault);

}  // namespace shardline::testing
