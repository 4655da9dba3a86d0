// The most recent operations between ranks, in a ring of fixed-size records. With a path, the ring is in a
// memory-mapped file, so it can be read after the process was killed (flight_file.h): the first question about a hang
// is what every rank was waiting for. Tables next to the ring keep facts that the ring would overwrite: the operation
// for which each rank waits, the members of each group, how many operations of each kind a rank has begun in it, and
// the rank's place in its program.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/flight/flight_record.h"

namespace shardline {

class FlightRing {
 public:
  struct Options {
    std::string path = {};                          // "": in memory only
    std::string job = {};                           // the id of the job: at most 23 characters, equal on all its ranks
    int capacity = 1024;                            // records per rank
    int first_rank = 0, ranks = 1, world_size = 1;  // the ranks that this process runs
  };

  // Throws RunError if the file cannot be created.
  explicit FlightRing(const Options& options);
  ~FlightRing();
  FlightRing(const FlightRing&) = delete;
  FlightRing& operator=(const FlightRing&) = delete;

  // The size of the file in bytes.
  static int64_t bytes_of(const Options& options);

  // Stores a copy and returns its ticket; fills in start time, place and group. May be called from any thread; takes a
  // lock only for the first operation of a group or of one of its streams.
  uint64_t begin(const FlightRecord& record, const FlightGroup& group);
  // Records that the rank now waits for the operation. Both do nothing if the record has been overwritten.
  void wait(uint64_t ticket);
  void end(uint64_t ticket, FlightState state);
  // A thread of a rank of this process blocks from begin_wait to end_wait, until an operation has ended. The rank's
  // table keeps a copy of the record in the meantime and after a failure, because the ring may have overwritten it long
  // before. record: as passed to begin(), plus the ticket and the start time.
  void begin_wait(const FlightRecord& record, const FlightGroup& group);
  void end_wait(int rank, uint64_t ticket, bool failed);
  // The ticket that the next operation will get.
  uint64_t next_ticket() const;
  // The records present, oldest first.
  std::vector<FlightRecord> records() const;

  // Records the place of a rank of this process; does nothing for other ranks.
  void set_place(int rank, const FlightPlace& place);
  // Records the end of one rank of this process, or of all of them. Only the first call for a rank has an effect. If a
  // reason is too long for its field, it is cut and ends with " ...".
  void end_rank(int rank, FlightEnd end, const std::string& reason);
  void end_ranks(FlightEnd end, const std::string& reason);
  // Records a sign of life of this process; its communication thread calls this several times a second. The ring keeps
  // a long gap between two calls, with the places of the ranks, so that a process that was stopped is recognized even
  // if it wakes up when its job ends.
  void beat();

  const std::string& path() const { return path_; }
  const std::string& job() const { return job_; }

 private:
  struct Tables;

  void end_gap(int64_t now);
  bool knows(const FlightGroup& group);
  void count(uint64_t stream, uint64_t begun);

  std::string path_, job_;
  char* memory_ = nullptr;
  size_t bytes_ = 0;
  std::unique_ptr<Tables> tables_;
  std::mutex mutex_;  // guards additions to the tables of groups and streams, copies of waits, and gaps
};

// The longest time between calls of FlightRing::beat(), and the time after which a missing call counts as a gap.
inline constexpr int kFlightBeatMilliseconds = 250, kFlightGapMilliseconds = 1000;

// The ring of this process: in memory until open_flight_ring gives it a file. Earlier records stay in memory.
FlightRing& flight_ring();
void open_flight_ring(const FlightRing::Options& options);

// These set the place of this thread's rank, for its records and for readers of the file. An instruction is a new
// place; a layer is part of an instruction, and a new instruction begins without one. "": none.
void set_flight_step(int64_t step);
void set_flight_instruction(const std::string& text);
void set_flight_layer(const std::string& name);

}  // namespace shardline
