// Finds why a job ended or hangs, from the records of its ranks until the first of them failed. A pure function: the
// same records give the same answer at any time and on any machine. Some ranks may have left no records.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/flight/flight_file.h"

namespace shardline {

// The records of a job's ranks.
struct JobRecords {
  // The records of one rank. Ranks that are threads share a file.
  struct Rank {
    std::shared_ptr<const FlightFile> file;
    FlightFile::Rank state;
    std::vector<FlightRecord> records;  // its own, oldest first
  };
  std::string job = {};              // its id
  int left_out = 0;                  // files of other jobs that were found next to its own
  std::vector<std::string> damaged;  // for each unreadable file: why it cannot be read
  int world_size = 0;
  std::vector<std::string> hosts;  // by rank; empty: not known
  std::vector<int> stages;         // by rank; empty: not known
  std::map<int, Rank> ranks;       // those with records
  // The rank that ended the job according to its launcher, and how: "was killed by signal 9 (Killed)".
  struct Killed {
    int rank = 0;
    std::string how;
  };
  std::optional<Killed> killed;
  int64_t now_ns = 0;         // while the job runs; 0: it has ended
  std::string now_host = {};  // the host whose clock this is
};

// The first of these that the records show.
enum class Cause {
  none,         // nothing went wrong, as far as the records show
  killed,       // the launcher has reported it
  failed,       // ranks failed by themselves
  disagrees,    // ranks request different things in the same place
  skipped,      // a rank has left out an operation and continued with later ones
  behind,       // a rank has not begun what others wait for, or does not finish its part
  unreachable,  // ranks wait for a rank whose records are not here
  undelivered,  // all that take part in an operation have begun it, and it does not end
  circle,       // ranks wait for each other
  silent,       // a process gave no sign of life while others did
  ended,        // the job has ended, and these ranks have not recorded why
};
const char* to_string(Cause cause);

// An operation that a rank waits for, and the ranks that keep it from ending.
struct Wait {
  FlightRecord operation;
  double seconds = 0;
  std::vector<int> members;    // its group's ranks
  std::vector<int> not_begun;  // members that have not begun it
  std::vector<int> silent;     // members that have begun it, but whose process gives no sign of life
  std::vector<int> unknown;    // members without records
};

struct RankSituation {
  int rank = 0;
  std::string host;
  int stage = -1;  // -1: not known
  bool has_records = false;
  FlightPlace place;
  double seconds_there = 0;   // at this place
  double silent_seconds = 0;  // without a sign of life; 0: not silent
  FlightEnd end = FlightEnd::none;
  std::string reason;
  std::optional<Wait> wait;
};

// Two hosts whose clocks do not agree.
struct ClockDifference {
  std::string host, reference;
  double seconds = 0;  // by how much the host's clock is ahead
};

struct Diagnosis {
  Cause cause = Cause::none;
  std::vector<int> culprits;  // ascending; for `undelivered` and `circle` those that wait
  // The operation that was not done or on which ranks disagreed, as one of the other ranks requested it.
  std::optional<FlightRecord> operation;
  std::optional<FlightRecord> other;  // disagrees: what a culprit asks for in its place; skipped: what it did there
  double waited = 0;                  // seconds, for the operation
  double before_others = 0;           // ended: seconds between the ends of the culprits and of the others
  uint64_t missing = 0;               // behind: collectives or messages that the first culprit is behind
  std::string how;                    // killed
  bool is_running = false;
  int left_out = 0;                     // files of other jobs
  std::vector<std::string> damaged;     // for each unreadable file: why it cannot be read
  std::vector<RankSituation> ranks;     // all, ascending
  std::vector<ClockDifference> clocks;  // differences by which all times are corrected
};

Diagnosis diagnose(const JobRecords& job);

}  // namespace shardline
