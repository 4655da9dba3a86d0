// What every communicator must do, whatever carries the bytes. Each implementation's tests run it on each of their
// ranks. Catch's macros are not thread-safe, so failures are thrown as exceptions.
#pragma once
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/error.h"

namespace shardline::testing {

struct CommBehaviour {
  std::string name;
  std::function<void(Communicator&)> check;
};
std::vector<CommBehaviour> comm_behaviours();

// Operations that do not match: the last rank, or rank 0, requests a different one than all others. They are small
// enough for MPI's buffers, so a process can continue after them.
std::vector<CommBehaviour> comm_mismatches();
// The message of the DistributedError that the call throws; "" if it throws none.
std::string failure_of(const std::function<void()>& call);

// A digest of the bits of many reductions over `comm`: equal for implementations that add in the same order.
uint64_t reduction_digest(Communicator& comm);
// Computes the same digest with plain loops on one thread, for a world of n ranks.
uint64_t expected_reduction_digest(int n);

}  // namespace shardline::testing

#define EXPECT(condition, ...)                                                                           \
  do {                                                                                                   \
    if (!(condition))                                                                                    \
      throw std::logic_error(::shardline::cat("line ", __LINE__, ": ", #condition, " ", ##__VA_ARGS__)); \
  } while (false)
