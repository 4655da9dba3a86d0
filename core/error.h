// The errors of shardline. A user's mistake is a typed exception that says the rule, the values, where they came from
// and what to change; a mistake of ours is an InvariantError with rank, file and line. The library never prints or
// exits.
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

// A file, a disk or a peer failed while running. The program exits with 1.
struct RunError : Error {
  using Error::Error;
};

// A device or a host does not have enough memory.
struct OutOfMemory : RunError {
  using RunError::RunError;
};

// A file that the user gave has wrong contents; the message names the file and the place in it. Exits with 1.
struct DataError : RunError {
  using RunError::RunError;
};

// An operation between ranks failed. The message has rank, host, operation, group, peer, times and the library's error.
struct DistributedError : RunError {
  using RunError::RunError;
};

// A signal asked the run to end.
struct Interrupted : RunError {
  using RunError::RunError;
};

// The same, but the run can continue from a checkpoint: a new one, or its old one before step 1. Exits with 3.
struct StoppedAfterSaving : Interrupted {
  using Interrupted::Interrupted;
};

// A broken promise inside shardline itself.
struct InvariantError : Error {
  using Error::Error;
};

// An error that all ranks throw, because all of them know its cause; messages about it name no rank.
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

// cat("rank ", 3, " of ", 4) -> "rank 3 of 4": how messages are put together.
template <class... Parts>
std::string cat(const Parts&... parts) {
  return detail::concat(parts...);
}

}  // namespace shardline

// On in all builds. SL_ASSERT(n == m, "n is ", n, ", m is ", m)
#define SL_ASSERT(condition, ...)                                                                           \
  do {                                                                                                      \
    if (!(condition))                                                                                       \
      ::shardline::detail::invariant_failed(#condition, __FILE__, __LINE__, ::shardline::cat(__VA_ARGS__)); \
  } while (false)
