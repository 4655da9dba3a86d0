// Reads the file of a flight ring. The process that wrote it may still be running or may have been killed, and the file
// may come from elsewhere: it may contain anything, but what is returned is safe to use.
#pragma once
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/flight/flight_record.h"

namespace shardline {

struct FlightFile {
  struct Rank {
    int rank = 0;
    FlightPlace place, before_gap;
    FlightEnd end = FlightEnd::none;
    int64_t end_ns = 0;
    std::string reason;  // may have several lines
  };

  std::string host;
  std::string job;  // the id of the job
  int world_size = 0;
  int64_t opened_ns = 0;
  int64_t beat_ns = 0;                       // the last sign of life of the process; 0: it gives none
  int64_t gap_begin_ns = 0, gap_end_ns = 0;  // the last long period without a sign of life; 0: none
  std::vector<Rank> ranks;
  std::vector<FlightGroup> groups;  // members are ranks of the world
  // Oldest first; rank and peer are existing ranks, or -1. The operation for which a rank waits is among them, even if
  // the ring has overwritten it.
  std::vector<FlightRecord> records;
  std::map<uint64_t, uint64_t> streams;  // internal to begun()
  bool counts_all = true;

  // How many operations of a stream the rank has begun since its group was created; empty if unknown. peer: rank in the
  // group, for messages.
  std::optional<uint64_t> begun(uint64_t group_id, int rank, FlightStream stream, int peer = -1) const;
};

// Throws DataError if the file is not a flight ring or is truncated.
FlightFile read_flight_file(const std::string& path);

// One line per record: state, ranks, operation and duration.
void print_flight(std::ostream& out, const std::vector<FlightRecord>& records);

}  // namespace shardline
