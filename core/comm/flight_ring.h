// The last operations between ranks, in a ring of fixed records. With a path the ring lies in a memory-mapped file, so
// it can be read after the process was killed: what every rank was waiting for is the first question about a hang.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace shardline {

enum class FlightState : int32_t { running = 0, done = 1, failed = 2 };

// One operation. Text is cut to its field and ends with 0. Times are nanoseconds since the epoch; end is 0 while
// running.
struct FlightRecord {
  uint64_t ticket = 0;    // counts the operations of this process, from 1
  uint64_t sequence = 0;  // number of this operation in its group or pair
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  FlightState state = FlightState::running;
  int32_t rank = -1;  // in the world
  int32_t peer = -1;  // partner or root in the group; -1: none
  char op[20] = {};
  char group[32] = {};
  char dtype[16] = {};
  char shape[40] = {};
  char what[72] = {};
  char instruction[72] = {};  // of the schedule; see set_flight_instruction
};

class FlightRing {
 public:
  // path "": memory only. Throws RunError if the file cannot be made.
  explicit FlightRing(int capacity = 1024, const std::string& path = "");
  ~FlightRing();
  FlightRing(const FlightRing&) = delete;
  FlightRing& operator=(const FlightRing&) = delete;

  // Stores a copy and returns its ticket; start time and instruction are filled in here. From any thread, without
  // locks.
  uint64_t begin(const FlightRecord& record);
  // Does nothing if the record was overwritten meanwhile.
  void end(uint64_t ticket, FlightState state);
  // The ticket of the operation that begins next.
  uint64_t next_ticket() const;
  // The records present, oldest first.
  std::vector<FlightRecord> records() const;

 private:
  struct File;
  File* file_ = nullptr;
  size_t bytes_ = 0;
};

// The ring of this process: in memory until open_flight_ring gives it a file. Records begun before stay in memory.
FlightRing& flight_ring();
void open_flight_ring(const std::string& path, int capacity = 1024);

// The instruction that this thread is executing, for its records from now on. "" for none.
void set_flight_instruction(const std::string& text);
std::string flight_instruction();

// Reads a ring file. Throws DataError for any other file.
std::vector<FlightRecord> read_flight_file(const std::string& path);
// One line per record: state, ranks, operation and duration.
void print_flight(std::ostream& out, const std::vector<FlightRecord>& records);

}  // namespace shardline
