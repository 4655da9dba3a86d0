// Records of a rank's operations with other ranks and of its place in the program, as types that can be mapped from a
// file. Text is truncated to its field and null-terminated. Times are nanoseconds since the epoch, 0 for never.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

enum class FlightState : int32_t { running = 0, done = 1, failed = 2 };

// A rank's place in its program.
struct FlightPlace {
  int64_t since_ns = 0;
  int64_t step = 0;     // training step, from 1; 0: none has begun
  uint64_t serial = 0;  // number of places before this one: equal on ranks that run the same instructions
  char instruction[72] = {};
  char layer[40] = {};
};

// One operation.
struct FlightRecord {
  uint64_t ticket = 0;    // counts the operations of this process, from 1
  uint64_t sequence = 0;  // number of this operation within its group or pair
  uint64_t group_id = 0;  // see FlightGroup
  int64_t start_ns = 0;
  int64_t wait_ns = 0;  // when the rank began to wait for it
  int64_t end_ns = 0;
  int64_t elements = 0;  // in the tensor on which the ranks must agree
  FlightState state = FlightState::running;
  int32_t rank = -1;  // in the world
  int32_t peer = -1;  // partner or root in the group; -1: none
  char op[20] = {};
  char group[32] = {};
  char dtype[16] = {};
  char shape[40] = {};
  char what[72] = {};
  FlightPlace place;  // when it began
};

// A group of ranks. All members know it by the same id, which no other group of the job has.
struct FlightGroup {
  uint64_t id = 0;
  std::string name;
  std::vector<int> members;  // world ranks, by rank in the group
};

// How a rank ended, if it could record this: normally, with an error of its own, because an operation between ranks
// failed, or because it lost its connection to the launcher.
enum class FlightEnd : int32_t { none = 0, done = 1, failed = 2, gave_up = 3, cut_off = 4 };

// Operations that are numbered together: collectives of a group, sends to one of its ranks, receives from one.
enum class FlightStream : uint32_t { collective = 0, send = 1, recv = 2 };

template <size_t n>
void fill_text(char (&field)[n], std::string_view text) {
  const size_t length = std::min(text.size(), n - 1);
  std::memcpy(field, text.data(), length);
  std::memset(field + length, 0, n - length);
}

}  // namespace shardline
