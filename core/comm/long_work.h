// Work of unknown length, such as hashing or writing files, that some ranks of a group do while the others wait. A
// fixed time limit does not suit it. Instead, the limit of a wait restarts whenever the working ranks report progress,
// so that slow work may take as long as it needs and stalled work ends the job.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "core/comm/communicator.h"

namespace shardline {

class LongWork {
 public:
  // Receives sums over the group; total is 0 until a rank knows its own.
  using Show = std::function<void(int64_t done, int64_t total)>;

  // Collective over `group`. `what` names the work in time-out errors. On a rank that passes `show`, report() and
  // finish() call it from time to time. Until finish() returns, nothing else may be issued on `group`; other
  // communicators, including those split off it, may be used.
  LongWork(Communicator& group, std::string what, Show show = {});

  // Reports that this rank has done `done` of `total` units (usually bytes). May be called from any thread. It never
  // waits for other ranks itself, but blocks while another thread of this rank does so in finish(). Call it only when
  // `done` has grown, and more often than the time limit.
  void report(int64_t done, int64_t total);

  // Waits for an operation of another communicator whose other ranks may still be doing the long work: as long as
  // finish() would wait for them, or up to twice the limit if no rank makes progress.
  void await(Work& work);

  // Collective: returns when every rank has called it. Throws DistributedError if some rank neither reports progress
  // nor finishes within the time limit of a collective (core/comm/timeouts.h).
  void finish();

 private:
  struct State {
    int64_t done = 0, total = 0, finished = 0;
  };
  void take_part();
  void start_round();
  State end_round();

  Communicator& group_;
  const std::string what_;
  const Show show_;
  std::mutex mutex_;  // guards everything below
  State mine_;
  at::Tensor sums_;  // the sums of the round in progress
  WorkPtr round_;
  double round_start_ = 0;  // in steady_seconds()
  double next_round_ = 0;   // the earliest start of the next round, in steady_seconds()
};

}  // namespace shardline
