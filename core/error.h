// The errors of shardline. A user's mistake is a typed exception whose message states the rule, the values, where they
// came from and what to change; our own mistake is an InvariantError with rank, file and line. The library never prints
// or exits.
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>

namespace shardline {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The config file or the command line is wrong. The program exits with 2.
struct ConfigError : Error {
  using Error::Error;
};

// A file, a disk or a peer failed during the run. The program exits with 1.
struct RunError : Error {
  using Error::Error;
};

// A device or a host does not have enough memory.
struct OutOfMemory : RunError {
  using RunError::RunError;
};

// A file that the user supplied has invalid contents; the message names the file and the place in it. Exits with 1.
struct DataError : RunError {
  using RunError::RunError;
};

// An operation between ranks failed. The message states rank, host, operation, group, peer, times and library error.
struct DistributedError : RunError {
  using RunError::RunError;
};

// A signal asked the run to end.
struct Interrupted : RunError {
  using RunError::RunError;
};

// As above, but the run can continue from a checkpoint: a new one or, if no step has been trained, the one it started
// from. Exits with 3.
struct StoppedAfterSaving : Interrupted {
  using Interrupted::Interrupted;
};

// An invariant of shardline itself does not hold.
struct InvariantError : Error {
  using Error::Error;
};

// An error that all ranks throw because all of them know its cause; its message names no rank.
struct OfAllRanks {
  virtual ~OfAllRanks() = default;
};
template <class E>
struct AllRanks : E, OfAllRanks {
  using E::E;
};

// The rank that error messages name; one per thread, because ranks may be threads. -1 before start.
int current_rank();
void set_current_rank(int rank);

namespace detail {
[[noreturn]] void invariant_failed(const char* condition, const char* file, int line, const std::string& what);

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  ((out << parts), ...);
  return out.str();
}
}  // namespace detail

// Concatenates the parts of a message: cat("rank ", 3, " of ", 4) returns "rank 3 of 4".
template <class... Parts>
std::string cat(const Parts&... parts) {
  return detail::concat(parts...);
}

}  // namespace shardline

// Checked in all builds. SL_ASSERT(n == m, "n is ", n, ", m is ", m)
#define SL_ASSERT(condition, ...)                                                                           \
  do {                                                                                                      \
    if (!(condition))                                                                                       \
      ::shardline::detail::invariant_failed(#condition, __FILE__, __LINE__, ::shardline::cat(__VA_ARGS__)); \
  } while (false)
