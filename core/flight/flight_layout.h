// The file of a flight ring: a header, followed by tables whose sizes it states; each begins at a multiple of 8 bytes.
// Fields that may be read while they are written are accessed through std::atomic_ref. Internal to flight_ring.cpp,
// which maps the file, and flight_file.cpp, which reads it.
#pragma once
#include <atomic>
#include <cstdint>

#include "core/flight/flight_record.h"

namespace shardline::flight {

inline constexpr char kMagic[8] = {'S', 'L', 'F', 'L', 'Y', '0', '0', '3'};
inline constexpr uint32_t kMembersPerRank = 16;  // for each rank of the world: the minimum room for members
inline constexpr uint32_t kFull = 1;             // flag: some operations could not be counted

struct Header {
  char magic[8];
  uint32_t record_bytes;
  uint32_t capacity;  // records
  int32_t first_rank;
  uint32_t ranks;
  uint32_t world_size;
  uint32_t groups;
  uint32_t members;
  uint32_t streams;  // a power of two
  uint32_t groups_used;
  uint32_t flags;
  uint64_t next;  // ticket
  int64_t opened_ns, beat_ns;
  int64_t gap_begin_ns, gap_end_ns;  // the last long gap between two signs of life
  char host[64];
  char job[24];
};

struct Rank {
  FlightPlace place, before_gap;
  FlightRecord waits_for;  // ticket 0: the rank waits for nothing
  int64_t end_ns;
  FlightEnd end;  // written last
  char reason[508];
};

struct Group {
  uint64_t id;
  char name[32];
  uint32_t first_member;
  uint32_t size;
};

// An entry of an open-addressed hash table.
struct Stream {
  uint64_t key;  // 0: free
  uint64_t begun;
};

static_assert(std::atomic_ref<uint64_t>::is_always_lock_free, "the numbers are shared between processes");

// Offsets of the tables in the file, in bytes.
struct Offsets {
  uint64_t ranks, groups, members, streams, records, end;

  explicit Offsets(const Header& header) {
    ranks = sizeof(Header);
    groups = ranks + uint64_t{header.ranks} * sizeof(Rank);
    members = groups + uint64_t{header.groups} * sizeof(Group);
    streams = members + (uint64_t{header.members} * sizeof(int32_t) + 7) / 8 * 8;
    records = streams + uint64_t{header.streams} * sizeof(Stream);
    end = records + uint64_t{header.capacity} * sizeof(FlightRecord);
  }
};

// The key of a stream; never 0.
inline uint64_t stream_key(uint64_t group_id, int rank, FlightStream stream, int peer) {
  uint64_t key = group_id;
  for (const uint64_t part :
       {static_cast<uint64_t>(rank), static_cast<uint64_t>(stream), static_cast<uint64_t>(peer)}) {
    key = (key ^ (part + 0x9e3779b97f4a7c15)) * 0xff51afd7ed558ccd;  // the constants of splitmix64 and murmur3
    key ^= key >> 32;
  }
  return key == 0 ? 1 : key;
}

}  // namespace shardline::flight
